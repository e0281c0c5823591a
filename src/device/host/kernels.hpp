// The kernels of the host device: one function for each type and operation, in one table for each instruction set.
// Private to src/device/host and its tests. Everything here is plain data without inline functions, because the files
// that include it are compiled for different instruction sets and the linker must find nothing in common to merge.
// Read next: combine.ipp (the kernels), dispatch.cpp (which table).
#pragma once

#include <cstdint>

namespace hoccl {
struct Reduction;
struct Combine;
}  // namespace hoccl

namespace hoccl::host {

// hoccl::Combine and its Reduction as plain numbers.
struct Pass {
  void* const* destinations;
  const void* const* sources;
  int destination_count;  // >= 1
  int source_count;       // >= 1
  std::int64_t count;     // elements
  double scale;
  std::int64_t divisor;
  bool scale_last;
  bool divide;
};

using Kernel = void (*)(const Pass&) noexcept;

inline constexpr int kTypeCount = 12;
inline constexpr int kKernelOps = 4;  // sum, prod, max, min; an average is a sum

struct KernelTable {
  const char* name;
  Kernel kernels[kTypeCount][kKernelOps];  // in the order of Type and of Op
};

// Null when the library was not built for the set. Only dispatch.cpp knows whether this machine can run it.
const KernelTable* baseline_table() noexcept;
const KernelTable* avx2_table() noexcept;
const KernelTable* avx512_table() noexcept;

// The tables that this machine can run, the best first, null at the end. The baseline is always there.
struct UsableTables {
  const KernelTable* tables[4];
};
UsableTables usable_tables() noexcept;

void combine_with(const KernelTable& table, const Reduction& reduction, const Combine& work) noexcept;

}  // namespace hoccl::host
