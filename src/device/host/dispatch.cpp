// Chooses among the kernel tables by what the processor has, and turns a Combine into the plain numbers that kernels
// take. Copies never reach a kernel. There is no knob: all tables give the same bits.
#include <cstring>

#include "src/device/device.hpp"
#include "src/device/host/kernels.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hoccl::host {

static_assert(kMaxSources == 9);  // combine.ipp has room for so many
static_assert(kTypes.size() == kTypeCount);
static_assert(static_cast<int>(Type::int8) == 0 && static_cast<int>(Type::uint64) == 5 &&
              static_cast<int>(Type::float16) == 6 && static_cast<int>(Type::float64) == 8 &&
              static_cast<int>(Type::bfloat16) == 9 && static_cast<int>(Type::float8e5m2) == 11);
static_assert(static_cast<int>(Op::sum) == 0 && static_cast<int>(Op::prod) == 1 && static_cast<int>(Op::max) == 2 &&
              static_cast<int>(Op::min) == 3);

namespace {

#if defined(__x86_64__)
bool has_f16c() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool has_avx2() noexcept { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }
bool has_avx512() noexcept {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
bool has_avx2() noexcept { return false; }
bool has_avx512() noexcept { return false; }
#endif

// Cut so that what was read for the first destination is still in the nearest cache for the others.
constexpr std::size_t kCopyBytes = 16384;

void copy(const Combine& work, std::size_t bytes) noexcept {
  const auto* source = static_cast<const std::byte*>(work.sources[0]);
  const std::size_t stride = work.destinations.size() == 1 ? bytes : kCopyBytes;
  for (std::size_t at = 0; at < bytes; at += stride) {
    const std::size_t length = stride < bytes - at ? stride : bytes - at;
    for (void* destination : work.destinations)
      if (destination != source) std::memcpy(static_cast<std::byte*>(destination) + at, source + at, length);
  }
}

}  // namespace

UsableTables usable_tables() noexcept {
  UsableTables usable{};
  int n = 0;
  if (avx512_table() != nullptr && has_avx512()) usable.tables[n++] = avx512_table();
  if (avx2_table() != nullptr && has_avx2()) usable.tables[n++] = avx2_table();
  usable.tables[n] = baseline_table();
  return usable;
}

void combine_with(const KernelTable& table, const Reduction& reduction, const Combine& work) noexcept {
  if (work.count.value <= 0) return;
  const bool floating = row(reduction.type).floating;
  const bool scale = work.scale_last && floating;
  const bool divide = work.divide && !floating;
  if (work.sources.size() == 1 && !scale && !divide) {
    copy(work, size_of(bytes_of(work.count, reduction.type)));
    return;
  }
  const Pass pass{.destinations = work.destinations.data(),
                  .sources = work.sources.data(),
                  .destination_count = static_cast<int>(work.destinations.size()),
                  .source_count = static_cast<int>(work.sources.size()),
                  .count = work.count.value,
                  .scale = reduction.scale,
                  .divisor = reduction.divisor,
                  .scale_last = scale,
                  .divide = divide};
  const auto op = reduction.op == Op::avg ? Op::sum : reduction.op;
  table.kernels[static_cast<int>(reduction.type)][static_cast<int>(op)](pass);
}

}  // namespace hoccl::host

namespace hoccl {

const char* host_kernels() noexcept { return host::usable_tables().tables[0]->name; }

}  // namespace hoccl
