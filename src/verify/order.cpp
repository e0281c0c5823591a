// The order world: a value is a vector clock. Two accesses to one place, one of them a write, must be ordered by steps
// of a lane, by `after`, or by messages; else some timing swaps them. Credits give no order: a plan must not depend on
// how few there are. By reference, the taker of a message reads the giver's place; blocks of scratch always travel by
// value.
#include <algorithm>

#include "src/verify/run.hpp"

namespace hoccl {
namespace {

using Clock = std::vector<std::uint32_t>;  // by lane of all ranks

struct Stamp {
  Clock clock;
  std::int64_t home = -1;  // location that the message is read from, when it travels by reference
};

class Order : public Run<Order, Stamp> {
 public:
  Order(const Plan& plan, const VerifyOptions& options, Report& report) : Run(plan, options, report) {
    clocks_.assign(static_cast<std::size_t>(lanes()), Clock(static_cast<std::size_t>(lanes()), 0));
    history_.resize(clocks_.size());
    std::int64_t first = 0;
    const std::int64_t whole = std::int64_t{plan.collective.ranks} * plan.parts * options.rounds;
    for (const Program& p : plan.programs) {
      first_location_.push_back(first);
      first += 2 * whole + p.tmp_blocks;
    }
    locations_.resize(static_cast<std::size_t>(first));
  }

  void begin(const Step& step) {
    Clock& mine = now();
    ++mine[static_cast<std::size_t>(me())];
    if (step.after_steps != 0) {
      const std::size_t steps = round() * length(step.after_lane) + step.after_steps;
      join(history_[static_cast<std::size_t>(global_lane(step.after_lane))][steps - 1]);
    }
    step_ = &step;
    home_ = -1;
    pending_.clear();
  }

  Stamp take(int channel) {
    Stamp s = Run::take(channel);
    join(s.clock);
    if (s.home >= 0) pending_.push_back(s.home);
    return s;
  }
  Stamp load(Place place) {
    const std::int64_t location = locate(place);
    pending_.push_back(location);
    if (!step_->combine && place.space != Space::tmp) home_ = location;
    return {};
  }
  Stamp combine(const Stamp*, int) { return {}; }
  // Reads come before the write of the same step: the step happens as a whole.
  void store(Place place, const Stamp&) {
    flush_reads();
    const std::int64_t location = locate(place);
    // In place, a copy of a block onto itself touches nothing.
    const bool onto_itself = !step_->combine && step_->with() && locate(step_->with()) == location;
    if (!onto_itself) write(location);
    home_ = place.space == Space::tmp ? -1 : location;
  }
  void give(int channel, const Stamp&) {
    flush_reads();
    Run::give(channel, {now(), options_.by_reference ? home_ : -1});
  }
  bool end(const Step&) {
    flush_reads();
    return true;
  }
  void moved() { history_[static_cast<std::size_t>(me())].push_back(now()); }

 private:
  struct Access {
    int lane = -1;
    std::uint32_t time = 0;
  };
  struct Location {
    Access write;
    std::vector<Access> reads;  // since that write, the latest of each lane
  };

  int me() const { return global_lane(lane_); }
  Clock& now() { return clocks_[static_cast<std::size_t>(me())]; }
  void join(const Clock& other) {
    Clock& mine = now();
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = std::max(mine[i], other[i]);
  }
  bool ordered(Access before) { return before.lane < 0 || now()[static_cast<std::size_t>(before.lane)] >= before.time; }

  std::int64_t locate(Place place) const {
    const std::int64_t whole = std::int64_t{plan_.collective.ranks} * plan_.parts;
    const std::int64_t base = first_location_[static_cast<std::size_t>(rank_)];
    const Rank rank = static_cast<Rank>(rank_);
    if (place.space == Space::tmp) return base + 2 * whole * options_.rounds + place.block;
    const bool input = place.space == Space::in;
    const std::int64_t block = input ? shared_in(plan_.collective, plan_.parts, rank, place.block)
                                     : shared_out(plan_.collective, plan_.parts, rank, place.block);
    const std::int64_t space = input && !options_.in_place ? whole * options_.rounds : 0;
    return base + space + whole * static_cast<std::int64_t>(round()) + block;
  }

  void flush_reads() {
    for (const std::int64_t location : pending_) read(location);
    pending_.clear();
  }
  void read(std::int64_t number) {
    Location& l = locations_[static_cast<std::size_t>(number)];
    if (!ordered(l.write)) note("order", here(*step_) + " reads a block while another lane may write it");
    const Access mine{me(), now()[static_cast<std::size_t>(me())]};
    for (Access& a : l.reads)
      if (a.lane == mine.lane) {
        a = mine;
        return;
      }
    l.reads.push_back(mine);
  }
  void write(std::int64_t number) {
    Location& l = locations_[static_cast<std::size_t>(number)];
    if (!ordered(l.write)) note("order", here(*step_) + " writes a block while another lane may write it");
    for (const Access a : l.reads)
      if (!ordered(a)) note("order", here(*step_) + " writes a block while another lane may still read it");
    l.reads.clear();
    l.write = {me(), now()[static_cast<std::size_t>(me())]};
  }

  std::vector<Clock> clocks_;                // by lane
  std::vector<std::vector<Clock>> history_;  // by lane: the clock after each step
  std::vector<std::int64_t> first_location_;
  std::vector<Location> locations_;
  const Step* step_ = nullptr;
  std::int64_t home_ = -1;             // where the value of the step under way lies, when that may be published
  std::vector<std::int64_t> pending_;  // reads of the step under way
};

}  // namespace

void check_order(const Plan& plan, const VerifyOptions& options, Report& report) {
  Order world(plan, options, report);
  if (!world.run()) world.note_progress();
}

}  // namespace hoccl
