// See measure.hpp.
#include "perf/measure.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace perf {
namespace {

// What a receive buffer holds before a checked run: a result that did not come cannot look right.
constexpr int kPoison = 0xcb;

std::byte* allocate(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("no memory for a buffer of " + std::to_string(bytes) + " bytes");
  madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

// What one rank moved over the links of one channel in one direction.
struct Moved {
  char channel[16];
  int outgoing, between_nodes;
  long long bytes, messages;
};
struct RankMoved {
  Moved rows[16];
  int used, node;
};

std::vector<hocclTraffic_t> traffic(ncclComm_t comm) {
  int count = 0;
  must(hocclCommTraffic(comm, nullptr, &count), "hocclCommTraffic");
  std::vector<hocclTraffic_t> rows(static_cast<std::size_t>(count));
  must(hocclCommTraffic(comm, rows.data(), &count), "hocclCommTraffic");
  rows.resize(static_cast<std::size_t>(count));
  return rows;
}

void add(RankMoved& sums, const hocclTraffic_t& link, int sign) {
  Moved* row = sums.rows;
  Moved* const end = sums.rows + sums.used;
  while (row != end && (std::strncmp(row->channel, link.channel, sizeof row->channel) != 0 ||
                        row->outgoing != link.outgoing || row->between_nodes != link.between_nodes))
    ++row;
  if (row == end) {
    if (sums.used == 16) die("a schedule has more channels than --counters can show");
    *row = Moved{};
    std::memcpy(row->channel, link.channel, sizeof row->channel);
    row->outgoing = link.outgoing;
    row->between_nodes = link.between_nodes;
    ++sums.used;
  }
  row->bytes += sign * link.bytes;
  row->messages += sign * link.messages;
}

}  // namespace

Bench::Bench(const Options& options, Crew& crew) : options_(options), crew_(crew) {
  const auto whole = static_cast<std::size_t>(options.max_bytes) + 16;
  const std::size_t part = whole / static_cast<std::size_t>(crew.world()) + 16;
  send_bytes_ = options.collective == Collective::all_gather ? part : whole;
  receive_bytes_ = options.collective == Collective::reduce_scatter ? part : whole;
  for (int i = 0; i < crew.ranks(); ++i) buffers_.push_back({allocate(send_bytes_), allocate(receive_bytes_)});
}

Bench::~Bench() {
  for (const Buffers& b : buffers_) {
    munmap(b.send, send_bytes_);
    munmap(b.receive, receive_bytes_);
  }
}

Shape Bench::shape(long long wanted, const NamedType& type) const {
  const long long n = crew_.world();
  Shape s;
  if (options_.collective == Collective::all_reduce) {
    s.count = static_cast<std::size_t>(wanted / type.bytes);
    s.size = static_cast<long long>(s.count) * type.bytes;
    s.block = (static_cast<long long>(s.count) + n - 1) / n * type.bytes;
    s.bus_factor = 2.0 * static_cast<double>(n - 1) / static_cast<double>(n);
  } else {
    s.block = wanted / n / 16 * 16;
    s.count = static_cast<std::size_t>(s.block / type.bytes);
    s.size = s.block * n;
    s.bus_factor = static_cast<double>(n - 1) / static_cast<double>(n);
  }
  return s;
}

void Bench::load(const NamedType& type, const NamedOp& op) {
  type_ = type;
  op_ = op;
  data_ = std::make_unique<Data>(type, op, crew_.world());
  inputs_.clear();
  for (int r = 0; r < crew_.world(); ++r) inputs_.push_back(data_->input(r));
}

void Bench::load(const Shape& shape) {
  shape_ = shape;
  for (int i = 0; i < crew_.ranks(); ++i) {
    refill(i, true);
    refill(i, false);
  }
}

Bench::Call Bench::call(int i, bool in_place) const {
  const Buffers& b = buffers_[static_cast<std::size_t>(i)];
  if (!in_place) return {b.send, b.receive};
  const std::size_t mine = static_cast<std::size_t>(crew_.first_rank() + i) * static_cast<std::size_t>(shape_.block);
  switch (options_.collective) {
    case Collective::all_gather:
      return {b.receive + mine, b.receive};
    case Collective::reduce_scatter:
      return {b.send, b.send + mine};
    default:
      return {b.receive, b.receive};
  }
}

void Bench::run(int schedule, bool in_place, int operations) const {
  crew_.together(
      [&](int i) {
        const Call c = call(i, in_place);
        const ncclComm_t comm = crew_.comm(schedule, i);
        switch (options_.collective) {
          case Collective::all_gather:
            return ncclAllGather(c.send, c.receive, shape_.count, type_.type, comm, nullptr);
          case Collective::reduce_scatter:
            return ncclReduceScatter(c.send, c.receive, shape_.count, type_.type, op_.op, comm, nullptr);
          default:
            return ncclAllReduce(c.send, c.receive, shape_.count, type_.type, op_.op, comm, nullptr);
        }
      },
      options_.collective_name.c_str(), operations);
}

double Bench::timed(int schedule, bool in_place, int iterations) {
  using Clock = std::chrono::steady_clock;
  crew_.meet();
  const Clock::time_point begin = Clock::now();
  for (int k = 0; k < iterations; ++k) run(schedule, in_place, options_.aggregate);
  const std::chrono::duration<double, std::micro> elapsed = Clock::now() - begin;
  return crew_.largest(elapsed.count() / iterations / options_.aggregate);
}

void Bench::refill(int i, bool in_place) {
  const Call c = call(i, in_place);
  const Pattern& input = inputs_[static_cast<std::size_t>(crew_.first_rank() + i)];
  const bool gathers = options_.collective == Collective::all_gather;
  const auto whole = static_cast<std::size_t>(shape_.size);
  const auto part = static_cast<std::size_t>(shape_.block);
  // Poison first: in place, the input is a part of what is poisoned.
  if (options_.collective == Collective::reduce_scatter) {
    if (!in_place) std::memset(c.receive, kPoison, part);
  } else {
    std::memset(c.receive, kPoison, whole);
  }
  data_->fill(c.send, (gathers ? part : whole) / static_cast<std::size_t>(type_.bytes), input, 0);
}

long long Bench::wrong(int i, bool in_place) const {
  const Call c = call(i, in_place);
  if (options_.collective == Collective::all_reduce)
    return data_->wrong(c.receive, shape_.count, data_->reduced(), 0, true);
  if (options_.collective == Collective::reduce_scatter)
    return data_->wrong(c.receive, shape_.count, data_->reduced(),
                        static_cast<std::size_t>(crew_.first_rank() + i) * shape_.count, true);
  long long found = 0;
  for (std::size_t r = 0; r < inputs_.size(); ++r)
    found += data_->wrong(c.receive + r * static_cast<std::size_t>(shape_.block), shape_.count, inputs_[r], 0, false);
  return found;
}

long long Bench::checked(int schedule, bool in_place) {
  long long found = 0;
  for (int k = 0; k < options_.checks; ++k) {
    for (int i = 0; i < crew_.ranks(); ++i) refill(i, in_place);
    run(schedule, in_place);
    for (int i = 0; i < crew_.ranks(); ++i) found += wrong(i, in_place);
  }
  return crew_.total(found);
}

// "14 shares"; with "about" where shares are not all of one size or one was sent in part.
std::string Bench::in_shares(long long bytes) const {
  const long long n = crew_.world();
  if (shape_.size == 0) return "0 shares";
  if (bytes * n % shape_.size == 0) {
    const long long shares = bytes * n / shape_.size;
    return std::to_string(shares) + (shares == 1 ? " share" : " shares");
  }
  char text[48];
  std::snprintf(text, sizeof text, "about %.2f shares",
                static_cast<double>(bytes) * static_cast<double>(n) / static_cast<double>(shape_.size));
  return text;
}

void Bench::counted(int schedule, const std::string& name, int parts) {
  std::vector<RankMoved> mine(static_cast<std::size_t>(crew_.ranks()));
  crew_.meet();
  for (int i = 0; i < crew_.ranks(); ++i)
    for (const hocclTraffic_t& link : traffic(crew_.comm(schedule, i)))
      add(mine[static_cast<std::size_t>(i)], link, -1);
  run(schedule, false);
  for (int i = 0; i < crew_.ranks(); ++i) {
    RankMoved& sums = mine[static_cast<std::size_t>(i)];
    for (const hocclTraffic_t& link : traffic(crew_.comm(schedule, i))) add(sums, link, 1);
    sums.node = crew_.place(i).node;
  }
  const std::vector<RankMoved> all = crew_.gather(mine);
  if (!crew_.prints()) return;
  const long long n = crew_.world();
  std::printf(
      "# counters of one operation by %s, size %lld: a share is size / %lld = %s%lld bytes, cut into %d part%s\n",
      name.c_str(), shape_.size, n, shape_.size % n == 0 ? "" : "about ", (shape_.size + n / 2) / n, parts,
      parts == 1 ? "" : "s");
  std::vector<long long> leaving;  // by node
  for (std::size_t r = 0; r < all.size(); ++r)
    for (const Moved* row = all[r].rows; row != all[r].rows + all[r].used; ++row) {
      if (row->messages == 0) continue;
      std::printf("#   rank %3zu node %2d  %-8.16s %-3s %-13s %12lld bytes = %s in %lld message%s\n", r, all[r].node,
                  row->channel, row->outgoing != 0 ? "out" : "in",
                  row->between_nodes != 0 ? "between nodes" : "inside node", row->bytes, in_shares(row->bytes).c_str(),
                  row->messages, row->messages == 1 ? "" : "s");
      const auto node = static_cast<std::size_t>(all[r].node);
      if (leaving.size() <= node) leaving.resize(node + 1);
      if (row->outgoing != 0 && row->between_nodes != 0) leaving[node] += row->bytes;
    }
  for (std::size_t node = 0; node < leaving.size(); ++node)
    std::printf("#   node %2zu sends to other nodes %lld bytes = %s\n", node, leaving[node],
                in_shares(leaving[node]).c_str());
}

}  // namespace perf
