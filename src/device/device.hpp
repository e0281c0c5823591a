// A place where memory lives and arithmetic happens. Knows nothing of plans, links or ranks. Host memory is
// src/device/host. Calls on the data path are noexcept, take no lock and allocate nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "src/base/types.hpp"

namespace hoccl {

// How elements are combined. Floating-point average multiplies each rank's own input by `scale` = 1/n as it is read;
// integer average divides the finished sum by `divisor` = n, rounding towards zero.
struct Reduction {
  Type type = Type::float32;
  Op op = Op::sum;
  double scale = 1.0;
  int divisor = 1;
};

inline constexpr int kMaxSources = 9;       // takes of a step and the place it reads
inline constexpr int kMaxDestinations = 9;  // gives of a step and the place it writes

// One pass over `count` elements: every destination gets the reduction of all sources, in the order of the sources.
// One source is a copy. 8- and 16-bit floats are combined in float32 over all sources and rounded once, to nearest
// even. A destination may equal a source, otherwise they do not overlap. Any element-aligned address works.
struct Combine {
  std::span<void* const> destinations;
  std::span<const void* const> sources;
  Count count;
  bool scale_last = false;  // multiply the last source by reduction.scale first (floating types only)
  bool divide = false;      // divide the result by reduction.divisor (integer types only)
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const noexcept = 0;
  // Zeroed memory aligned to 2 MiB pages where the system grants them. Throws Error{system} when there is none.
  virtual void* allocate(Bytes bytes) = 0;
  virtual void release(void* memory, Bytes bytes) noexcept = 0;
  virtual void combine(const Reduction& reduction, const Combine& work) noexcept = 0;
};

std::unique_ptr<Device> make_host_device();

// The instruction set that the host kernels were chosen for: "baseline", "avx2", "avx512".
const char* host_kernels() noexcept;

}  // namespace hoccl
