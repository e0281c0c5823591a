// The one instruction of a plan. Values only; no handles. Read next: src/plan/interpret.hpp, which alone says what
// a step means, and src/plan/builder.hpp, which gives the usual combinations their names.
//
// The firing rule. A step fires when everything it needs is there at once: the lane named by `after` has finished
// enough steps, every channel to take from holds a message, every channel to give to has a credit. Then it happens as
// a whole. There is no other way to wait and no way to choose, so the order in which lanes are tried cannot change
// the result (confluence): one symbolic run settles it for all timings.
#pragma once

#include <cstdint>

namespace hoccl {

// Where a block lies: the caller's input, the caller's output, scratch of the operation.
enum class Space : std::uint8_t { none = 0, in = 1, out = 2, tmp = 3 };

// One block of one space. Which elements that is, src/plan/cut.hpp says.
struct Place {
  Space space = Space::none;
  std::uint32_t block = 0;

  constexpr bool operator==(const Place&) const = default;
  constexpr explicit operator bool() const { return space != Space::none; }
};

inline constexpr int kMaxTakes = 8;  // channels that one step may take from
inline constexpr int kMaxGives = 8;  // channels that one step may give to

struct Step {
  std::uint32_t after_steps = 0;  // wait until `after_lane` has finished this many steps of this round; 0: no wait
  std::uint32_t with_block = 0;
  std::uint32_t into_block = 0;
  std::uint16_t take = 0;  // first of `takes` consecutive incoming channels of the program
  std::uint16_t give = 0;  // first of `gives` consecutive outgoing channels of the program
  std::uint8_t takes = 0;
  std::uint8_t gives = 0;
  std::uint8_t after_lane = 0;
  Space with_space = Space::none;
  Space into_space = Space::none;
  bool combine = false;  // reduce what was taken and what was read, in channel order, the read place last

  constexpr Place with() const { return {with_space, with_block}; }
  constexpr Place into() const { return {into_space, into_block}; }
  constexpr bool operator==(const Step&) const = default;
};
static_assert(sizeof(Step) <= 24, "one rank of 100,000 holds 212,499 steps");

}  // namespace hoccl
