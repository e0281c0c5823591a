// A call, once src/api has checked its arguments and before anything is chosen. A value.
#pragma once

#include "src/base/types.hpp"
#include "src/plan/collective.hpp"

namespace hoccl {

struct Request {
  Kind kind = Kind::all_reduce;
  const void* in = nullptr;
  void* out = nullptr;
  Count count;  // as the caller says it: all-reduce the whole, reduce-scatter what a rank receives, all-gather what it
                // sends
  Type type = Type::float32;
  Op op = Op::sum;
};

// Elements of one rank's outer block (src/plan/cut.hpp).
Count outer_count(const Request& request, int ranks);

}  // namespace hoccl
