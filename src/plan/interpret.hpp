// THE meaning of a step, for every world: symbols and orders (proof), host memory (execution). A world is a class
// with the operations used below; it decides what a value is. Marked for host and device compilers.
//
//   bool finished(lane, steps)          has that lane finished so many steps of the asking lane's round?
//   bool can_take(channel)              is there a message?
//   bool can_give(channel, step)        is there a credit?
//   void begin(step)
//   Value take(channel), load(place)    what was sent; what lies there
//   Value combine(values, n)            the reduction of n values in the order given
//   void store(place, value), give(channel, value)
//   bool end(step)                      false: the step failed, and the world knows why
#pragma once

#include "src/plan/step.hpp"

#ifdef __CUDACC__
#define HOCCL_HOST_DEVICE __host__ __device__
#else
#define HOCCL_HOST_DEVICE
#endif

namespace hoccl {

enum class Fired : std::uint8_t { moved, blocked, failed };

template <class World>
HOCCL_HOST_DEVICE Fired fire(const Step& step, World& world) noexcept {
  if (step.after_steps != 0 && !world.finished(step.after_lane, step.after_steps)) return Fired::blocked;
  for (int i = 0; i < step.takes; ++i)
    if (!world.can_take(step.take + i)) return Fired::blocked;
  for (int i = 0; i < step.gives; ++i)
    if (!world.can_give(step.give + i, step)) return Fired::blocked;

  world.begin(step);
  typename World::Value values[kMaxTakes + 1];
  int n = 0;
  for (int i = 0; i < step.takes; ++i) values[n++] = world.take(step.take + i);
  if (step.with()) values[n++] = world.load(step.with());
  const typename World::Value value = step.combine ? world.combine(values, n) : values[0];
  if (step.into()) world.store(step.into(), value);
  for (int i = 0; i < step.gives; ++i) world.give(step.give + i, value);
  return world.end(step) ? Fired::moved : Fired::failed;
}

}  // namespace hoccl
