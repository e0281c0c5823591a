#include "src/comm/wait.hpp"

#include <sched.h>

#include <utility>

#include "src/base/log.hpp"
#include "src/base/threads.hpp"

namespace hoccl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPassesPerLook = 4096;

void pause_core() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// One communicator's requests on their way.
class Run {
 public:
  explicit Run(Work& work) : work_(work) { next(); }

  bool over() const { return over_; }
  Communicator& comm() const { return *work_.comm; }

  // True when something moved.
  bool advance() {
    switch (comm().progress()) {
      case Executor::State::moved:
        return moved_ = true;
      case Executor::State::idle:
        return false;
      case Executor::State::done:
        next();
        return true;
      case Executor::State::failed:
        end(comm().failed());
        return true;
    }
    return false;
  }

  // Looks at what may end a wait early: an abort, a dead rank, one that left, the deadline. A deadline counts from when
  // something last moved.
  void look_around(Clock::time_point now) {
    comm().look_around();
    if (std::exchange(moved_, false)) still_since_ = now;
    const auto still = now - still_since_;
    if (comm().aborted())
      end(comm().failed());
    else if (comm().timeout().count() > 0 && still > comm().timeout())
      end(comm().timed_out());
    else if (still > kFarewell)
      if (const std::optional<Rank> leaver = comm().waits_for_leaver()) end(comm().left_alone(*leaver));
  }

 private:
  // What a rank that left has sent before may still be on its way.
  static constexpr std::chrono::seconds kFarewell{1};

  // Begins the next request. A plan that is new is wired here, which waits for the other ranks: the thread then drives
  // this communicator alone (see run).
  void next() {
    while (!over_) {
      if (at_ == work_.requests.size()) {
        over_ = true;
        return;
      }
      try {
        const Request& request = work_.requests[at_++];
        if (request.count == Count(0)) {
          comm().skip(request);
          continue;
        }
        comm().prepare(request);
        comm().start(request);
        still_since_ = Clock::now();
        return;
      } catch (const Error& e) {
        end(e);
      }
    }
  }
  void end(const Error& error) {
    work_.error = error;
    over_ = true;
  }

  Work& work_;
  std::size_t at_ = 0;
  bool over_ = false;
  bool moved_ = false;  // since the last look around
  Clock::time_point still_since_;
};

// Spin a little, then give the core away, then sleep until a peer rings or a descriptor is ready. Giving the core away
// is the cheapest wait among ranks that share a core; but where other programs compute, they keep it for a whole time
// slice, while a sleeper that is woken gets it back at once. So a yield that took that long is followed by waits that
// sleep.
class Patience {
 public:
  explicit Patience(std::vector<Run>& runs)
      : runs_(runs), hint_(runs.empty() ? none_ : runs.front().comm().wait_hint()) {
    for (const Run& r : runs) crowded_ = crowded_ || r.comm().crowded();
  }
  void moved() noexcept { idle_passes_ = 0; }

  void wait() {
    ++idle_passes_;
    const int spins = crowded_ ? kSpinsCrowded : kSpins;
    if (idle_passes_ <= spins) return pause_core();
    if (hint_.sleeps_at_once > 0) {
      --hint_.sleeps_at_once;
      return sleep();
    }
    const Clock::time_point before = Clock::now();
    if (idle_passes_ == spins + 1) yielding_since_ = before;
    if (before - yielding_since_ > kYielding) return sleep();
    sched_yield();
    if (Clock::now() - before > kForeignSlice) hint_.sleeps_at_once = kSleepsAtOnce;
  }

 private:
  static constexpr int kSpins = 2000, kSpinsCrowded = 16, kSleepsAtOnce = 500;
  static constexpr std::chrono::microseconds kYielding{300}, kForeignSlice{1000}, kLongestSleep{100'000};

  void sleep() {
    bells_.clear();
    fds_.clear();
    for (Run& r : runs_)
      if (!r.over()) {
        bells_.push_back(&r.comm().bell());
        r.comm().add_wait_fds(fds_);
      }
    for (Bell* bell : bells_) bell->arm();
    bool moved = false;
    for (Run& r : runs_)
      if (!r.over()) moved |= r.advance();
    if (!moved) sleep_on(bells_, fds_, kLongestSleep);
    for (Bell* bell : bells_) bell->disarm();
    const Clock::time_point now = Clock::now();
    for (Run& r : runs_)
      if (!r.over()) r.look_around(now);
    if (moved) idle_passes_ = 0;
  }

  std::vector<Run>& runs_;
  WaitHint none_;
  WaitHint& hint_;
  std::vector<Bell*> bells_;
  std::vector<int> fds_;
  bool crowded_ = false;
  int idle_passes_ = 0;
  Clock::time_point yielding_since_;
};

// A request that no schedule serves is refused on every rank alike, when it is begun; until then it needs no links.
bool needs_wiring(const Work& work) {
  try {
    for (const Request& request : work.requests)
      if (request.count > Count(0) && !work.comm->prepared(request)) return true;
  } catch (const Error&) {
  }
  return false;
}

// Drives all communicators until they are over.
void drive(std::span<Work> works) {
  std::vector<Run> runs;
  runs.reserve(works.size());
  for (Work& work : works) runs.emplace_back(work);
  Patience patience(runs);
  int passes = 0;
  for (bool over = false; !over;) {
    bool moved = false;
    over = true;
    for (Run& r : runs) {
      if (r.over()) continue;
      moved |= r.advance();
      over = over && r.over();
    }
    if (moved)
      patience.moved();
    else if (!over)
      patience.wait();
    // While one communicator moves, nobody sleeps, and sleeping is where the others' fate is looked at.
    if (runs.size() > 1 && ++passes % kPassesPerLook == 0)
      for (Run& r : runs)
        if (!r.over()) r.look_around(Clock::now());
  }
}

}  // namespace

void run(std::span<Work> works) {
  bool wires = false;
  for (const Work& work : works) wires = wires || needs_wiring(work);
  if (!wires || works.size() == 1) return drive(works);
  // Wiring waits for other ranks, who may be ranks of this thread or busy with another communicator of this group: each
  // communicator goes its own way once, on a thread of its own.
  run_together(works.size(), [&](std::size_t i) {
    log::set_rank(index(works[i].comm->rank()));
    drive(works.subspan(i, 1));
  });
}

}  // namespace hoccl
