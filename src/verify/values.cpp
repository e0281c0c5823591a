// The symbols world: a value is which block it is, of which round, which ranks' contributions it sums up, and in which
// order (the summation tree, as a hash). Finds wrong, missing, doubled and mixed-up blocks, and being stuck.
#include <array>
#include <bit>
#include <optional>

#include "src/base/bytes.hpp"
#include "src/verify/facts.hpp"
#include "src/verify/run.hpp"

namespace hoccl {
namespace {

struct Symbol {
  bool written = false;
  std::uint32_t block = 0;
  std::uint32_t round = 0;
  int contributions = 0;  // with repetition
  std::array<std::uint64_t, kMaxVerifiedRanks / 64> ranks{};
  std::uint64_t tree = 0;

  int distinct() const {
    int n = 0;
    for (const std::uint64_t word : ranks) n += std::popcount(word);
    return n;
  }
};

std::uint64_t mix(std::uint64_t seed, std::uint64_t value) {
  return hash_bytes(std::as_bytes(std::span(&value, 1)), seed);
}

class Values : public Run<Values, Symbol> {
 public:
  Values(const Plan& plan, const VerifyOptions& options, Report& report) : Run(plan, options, report) {
    const auto rounds = static_cast<std::uint32_t>(options.rounds);
    for (std::size_t r = 0; r < plan.programs.size(); ++r) {
      Memory m;
      m.in.resize(in_blocks(plan.collective, plan.parts) * rounds);
      m.out.resize(static_cast<std::size_t>(plan.collective.ranks * plan.parts) * rounds);
      m.tmp.resize(plan.programs[r].tmp_blocks);
      memory_.push_back(std::move(m));
      for (std::uint32_t round = 0; round < rounds; ++round)
        for (std::uint32_t b = 0; b < in_blocks(plan.collective, plan.parts); ++b)
          at(static_cast<int>(r), {Space::in, b}, round) = contribution(static_cast<Rank>(r), b, round);
    }
  }

  void begin(const Step&) {}
  void moved() {}
  Symbol load(Place place) { return at(rank_, place, now()); }
  void store(Place place, const Symbol& value) { at(rank_, place, now()) = value; }

  Symbol combine(const Symbol* values, int n) {
    Symbol sum = values[0];
    sum.tree = kHashSeed;
    for (int i = 0; i < n; ++i) {
      const Symbol& v = values[i];
      sum.written = sum.written && v.written;
      if (v.block != sum.block || v.round != sum.round) mixed_ = true;
      if (i > 0) sum.contributions += v.contributions;
      for (std::size_t w = 0; w < sum.ranks.size(); ++w) sum.ranks[w] |= v.ranks[w];
      sum.tree = mix(sum.tree, v.tree);
    }
    last_ = sum;
    return sum;
  }

  bool end(const Step& step) {
    if (mixed_) note("values", here(step) + " combines different blocks");
    mixed_ = false;
    if (step.combine && last_.contributions != last_.distinct())
      note("values", here(step) + " counts a rank's contribution twice");
    if (step.combine && !last_.written) note("values", here(step) + " reads what nobody wrote");
    // The executor finishes an integer average where a reduction is stored in the output: that must be the end.
    if (step.combine && step.into_space == Space::out && last_.distinct() != plan_.collective.ranks)
      note("values", here(step) + " stores a partial sum in the output");
    return true;
  }

  void check_end() {
    for (std::size_t r = 0; r < plan_.programs.size(); ++r)
      for (std::uint32_t round = 0; round < static_cast<std::uint32_t>(options_.rounds); ++round)
        for (std::uint32_t b = 0; b < out_blocks(plan_.collective, plan_.parts); ++b)
          check_block(static_cast<int>(r), b, round);
  }

 private:
  struct Memory {
    std::vector<Symbol> in, out, tmp;  // out: numbered as the whole buffer, so that in place `in` lies in it
  };

  std::uint32_t now() const { return static_cast<std::uint32_t>(round()); }

  static Symbol leaf(std::uint32_t block, std::uint32_t round, Rank rank) {
    Symbol s{true, block, round, 1, {}, mix(mix(kHashSeed, block), static_cast<std::uint64_t>(index(rank)))};
    s.ranks[static_cast<std::size_t>(index(rank)) / 64] |= std::uint64_t{1} << (index(rank) % 64);
    return s;
  }
  Symbol contribution(Rank rank, std::uint32_t in_block, std::uint32_t round) const {
    return leaf(before(plan_.collective, plan_.parts, rank, in_block).block, round, rank);
  }

  Symbol& at(int rank, Place place, std::uint32_t round) {
    Memory& m = memory_[static_cast<std::size_t>(rank)];
    const auto whole = static_cast<std::uint32_t>(plan_.collective.ranks * plan_.parts);
    if (place.space == Space::tmp) return m.tmp[place.block];
    if (place.space == Space::out)
      return m.out[shared_out(plan_.collective, plan_.parts, static_cast<Rank>(rank), place.block) + whole * round];
    if (options_.in_place)
      return m.out[shared_in(plan_.collective, plan_.parts, static_cast<Rank>(rank), place.block) + whole * round];
    return m.in[place.block + in_blocks(plan_.collective, plan_.parts) * round];
  }

  void check_block(int rank, std::uint32_t b, std::uint32_t round) {
    const Holding want = after(plan_.collective, plan_.parts, static_cast<Rank>(rank), b);
    const Symbol& have = at(rank, {Space::out, b}, round);
    const std::string where = fmt::format("rank {}, output block {} of round {}", rank, b, round);
    if (!have.written) return note("values", where + " is never written");
    if (have.block != want.block || have.round != round)
      return note("values", fmt::format("{} holds block {} of round {} instead of {}", where, have.block, have.round,
                                        want.block));
    const int expected = want.everyone ? plan_.collective.ranks : 1;
    if (have.distinct() != expected || have.contributions != expected)
      return note("values",
                  fmt::format("{} sums up {} of {} instead of {}", where, counted(have.contributions, "contribution"),
                              counted(have.distinct(), "rank"), expected));
    if (!want.everyone && have.tree != leaf(want.block, round, want.from).tree)
      return note("values", where + " comes from a wrong rank");
    // All ranks must hold the same bits: equal blocks of equal summation trees.
    if (plan_.collective.kind == Kind::all_reduce && have.tree != at(0, {Space::out, b}, round).tree)
      note("values", where + " is summed up in another order than on rank 0");
  }

  std::vector<Memory> memory_;
  Symbol last_;
  bool mixed_ = false;
};

}  // namespace

void check_values(const Plan& plan, const VerifyOptions& options, Report& report) {
  Values world(plan, options, report);
  if (!world.run()) world.note_progress();
  if (report.proved()) world.check_end();
}

}  // namespace hoccl
