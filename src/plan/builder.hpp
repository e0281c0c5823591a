// Named spellings of Step, and a builder that numbers channels and steps. These are names for combinations of the
// one instruction's parts, not further instructions. Used by src/schedules.
#pragma once

#include <string>
#include <utility>

#include "src/plan/plan.hpp"

namespace hoccl {

// A channel's number in a program, or none.
struct Take {
  int first = 0;
  int count = 0;
};
struct Give {
  int first = 0;
  int count = 0;
};

class ProgramBuilder {
 public:
  Take incoming(Channel channel) {
    program_.takes.push_back(channel);
    return {static_cast<int>(program_.takes.size()) - 1, 1};
  }
  Give outgoing(Channel channel) {
    program_.gives.push_back(channel);
    return {static_cast<int>(program_.gives.size()) - 1, 1};
  }
  int lane(std::string name) {
    program_.lanes.push_back({std::move(name), {}});
    return static_cast<int>(program_.lanes.size()) - 1;
  }
  void scratch(std::uint32_t blocks) { program_.tmp_blocks = blocks; }

  // Appends to the lane; returns how many steps the lane has then, for use as after().
  std::uint32_t add(int lane, const Step& step) {
    auto& steps = program_.lanes[static_cast<std::size_t>(lane)].steps;
    steps.push_back(step);
    return static_cast<std::uint32_t>(steps.size());
  }
  Program finish() { return std::move(program_); }

 private:
  Program program_;
};

namespace step {

// Every part is optional: a default Take, Give or Place is absent.
constexpr Step any(Take take, Place with, bool combine, Place into, Give give) {
  Step s;
  s.take = static_cast<std::uint16_t>(take.first);
  s.takes = static_cast<std::uint8_t>(take.count);
  s.with_space = with.space;
  s.with_block = with.block;
  s.combine = combine;
  s.into_space = into.space;
  s.into_block = into.block;
  s.give = static_cast<std::uint16_t>(give.first);
  s.gives = static_cast<std::uint8_t>(give.count);
  return s;
}

constexpr Step copy(Place with, Place into, Give give = {}) { return any({}, with, false, into, give); }
constexpr Step send(Place with, Give give) { return any({}, with, false, {}, give); }
constexpr Step receive(Take take, Place into, Give give = {}) { return any(take, {}, false, into, give); }
constexpr Step reduce_send(Take take, Place with, Give give) { return any(take, with, true, {}, give); }
constexpr Step reduce(Take take, Place with, Place into, Give give = {}) { return any(take, with, true, into, give); }

// The same step, not before `lane` has finished `steps` steps.
constexpr Step after(int lane, std::uint32_t steps, Step s) {
  s.after_lane = static_cast<std::uint8_t>(lane);
  s.after_steps = steps;
  return s;
}

}  // namespace step

}  // namespace hoccl
