// Binds a plan's program to memory and links, and drives its lanes. Knows no schedule and no transport by name. A
// request larger than the slots runs the same program several times (rounds); rounds follow each other lane by lane
// without a barrier. Nothing here allocates or waits once a program is bound: whoever waits (src/comm/wait.cpp) calls
// progress().
//
// Threads: one at a time; which one, the communicator says.
#pragma once

#include <string>
#include <vector>

#include "src/device/device.hpp"
#include "src/plan/cut.hpp"
#include "src/plan/plan.hpp"
#include "transports/transport.hpp"

namespace hoccl {

// A program with the links its channels run over. Links are owned by the communicator and outlive this.
struct BoundProgram {
  Program program;
  Kind kind = Kind::all_reduce;
  int parts = 1;
  std::vector<ReceiveLink*> takes;  // by the program's channel number
  std::vector<SendLink*> gives;
};

// One run of a bound program over memory.
struct Launch {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::byte* tmp = nullptr;  // room for tmp_blocks blocks of `slot` bytes
  Bytes slot{0};
  Cut in_cut, out_cut;
  std::uint32_t rounds = 1;
  Reduction reduction;
  std::uint32_t tag = 0;  // what every message of this run carries; equal on all ranks
};

// One instruction's effect on host memory; the host world of src/plan/interpret.hpp. Operands are collected while the
// step is interpreted and moved in one pass at its end.
class HostWorld {
 public:
  struct Value {};

  HostWorld(Device& device) : device_(device) {}
  void bind(const BoundProgram& bound, const Launch& launch);

  bool finished(int lane, std::uint32_t steps) const noexcept;
  bool can_take(int channel) noexcept {
    const auto c = static_cast<std::size_t>(channel);
    return (fronts_[c] = bound_->takes[c]->front()) != nullptr;
  }
  bool can_give(int channel, const Step& step) const noexcept;
  void begin(const Step& step) noexcept;
  Value take(int channel) noexcept;
  Value load(Place place) noexcept;
  Value combine(const Value*, int) noexcept { return {}; }
  void store(Place place, Value) noexcept;
  void give(int channel, Value) noexcept;
  bool end(const Step& step) noexcept;

  // Which lane is being tried, and how far each has come; kept by the executor.
  struct LaneState {
    std::uint32_t pc = 0;
    std::uint32_t round = 0;
  };
  std::vector<LaneState> lanes;
  std::size_t lane = 0;
  const std::string& failure() const { return failure_; }

 private:
  struct Extent {
    std::byte* data = nullptr;
    Count count;
  };
  Extent extent(Place place) const noexcept;
  Count length(const Step& step) const noexcept;
  bool has_home(const Step& step) const noexcept;
  bool scaled(const Step& step) const noexcept;
  bool check_messages(const Step& step) noexcept;

  Device& device_;
  const BoundProgram* bound_ = nullptr;
  const Launch* launch_ = nullptr;
  std::vector<const Slot*> fronts_;  // by incoming channel: the message that can_take() saw
  std::vector<Count> tmp_counts_;    // how many elements each block of scratch holds now
  bool scales_ = false, divides_ = false;

  // The step under way.
  const void* sources_[kMaxSources] = {};
  void* destinations_[kMaxDestinations] = {};
  int n_sources_ = 0, n_destinations_ = 0;
  std::byte* home_ = nullptr;  // where the value lies for good, if it does
  Count count_;
  std::string failure_;
};

class Executor {
 public:
  enum class State { moved, idle, done, failed };

  explicit Executor(Device& device) : world_(device) {}
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The two arguments must stay until done.
  void launch(const BoundProgram& bound, const Launch& launch);
  // Tries every lane once. done: all lanes have ended and all that they gave needs this side no more.
  State progress() noexcept;
  // Why progress() answered failed: what a message had wrong, or else what a link says.
  const std::string& mismatch() const { return world_.failure(); }
  std::string link_failure() const;
  // The operation has failed: lets go of all messages, and waits until no peer reads what this rank published, so that
  // the caller has its memory back. The links are of no use afterwards.
  void stop() noexcept;
  // The peers whose messages or credits the lanes wait for, for a person who asks why nothing moves.
  std::vector<Rank> waiting_for() const;

 private:
  bool lanes_done() const noexcept;
  const Link* failed_link() const noexcept;

  HostWorld world_;
  const BoundProgram* bound_ = nullptr;
  Launch launch_;
};

}  // namespace hoccl
