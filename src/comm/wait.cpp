#include "src/comm/wait.hpp"

#include <sched.h>

#include <thread>

#include "src/base/log.hpp"

namespace hoccl {
namespace {

using Clock = std::chrono::steady_clock;

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
        return true;
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

  // Looks at what may end a wait early: an abort, a dead rank, the deadline.
  void look_around(Clock::time_point now) {
    comm().look_around();
    if (comm().aborted())
      end(comm().failed());
    else if (comm().timeout().count() > 0 && now - started_ > comm().timeout())
      end(comm().timed_out());
  }

 private:
  void next() {
    while (!over_) {
      if (at_ == work_.requests.size()) {
        over_ = true;
        return;
      }
      try {
        comm().start(work_.requests[at_++]);
        started_ = Clock::now();
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
  Clock::time_point started_;
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

// Wires what one communicator's requests need. Ranks that fail here are waited for by others, who must be told.
void prepare(Work& work) {
  try {
    for (const Request& request : work.requests) work.comm->prepare(request);
  } catch (const Error& e) {
    work.error = e;
    work.comm->abort(e.what());
  }
}

// A request that no schedule serves is refused on every rank alike, before anybody waits for anybody.
bool needs_wiring(Work& work) {
  try {
    for (const Request& request : work.requests)
      if (!work.comm->prepared(request)) return true;
  } catch (const Error& e) {
    work.error = e;
  }
  return false;
}

// Wiring waits for other ranks. Ranks of one thread wait for each other, so each gets a thread for it.
void prepare(std::span<Work> works) {
  std::vector<Work*> unwired;
  for (Work& work : works)
    if (needs_wiring(work)) unwired.push_back(&work);
  if (unwired.size() == 1) return prepare(*unwired.front());
  std::vector<std::thread> threads;
  for (Work* work : unwired)
    threads.emplace_back([work] {
      log::set_rank(index(work->comm->rank()));
      prepare(*work);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void run(std::span<Work> works) {
  prepare(works);
  std::vector<Run> runs;
  runs.reserve(works.size());
  for (Work& work : works)
    if (!work.error) runs.emplace_back(work);
  Patience patience(runs);
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
  }
}

}  // namespace hoccl
