// The kernels, written once over vectors of the compiler's own width and compiled once per instruction set by the
// combine_*.cpp that include this. All of it is in an unnamed namespace and uses no inline function from elsewhere: a
// shared inline function compiled for AVX-512 could be the one that the linker keeps for all.
//
// One step reads the same few vectors of every source, folds them in registers, and writes every destination. So each
// source is read once from memory however many destinations there are, and a destination that is also a source is
// read before it is written. All sets give the same bits (built without contraction to fused multiply-add); only
// which of two NaNs survives an addition is the compiler's choice.

#include <cstddef>
#include <cstdint>

#include "src/device/host/kernels.hpp"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace hoccl::host {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class Element, int kBytes = kVectorBytes>
struct VectorOf {
  typedef Element type __attribute__((vector_size(kBytes)));
};
template <class Element, int kBytes = kVectorBytes>
using Vector = typename VectorOf<Element, kBytes>::type;

// A value as the bits of another type of its size.
template <class To, class From>
[[gnu::always_inline]] inline To as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

template <class To>
[[gnu::always_inline]] inline To read(const void* from) {
  To to;
  __builtin_memcpy(&to, from, sizeof to);
  return to;
}

// Integers are added and multiplied without sign, where wrapping around is defined, and compared with it.
template <class Signedness, class Unsigned>
struct Integer {
  using Element = Unsigned;
  using Wide = Vector<Unsigned>;
  using Compared = Vector<Signedness>;
  static constexpr bool kFloating = false;
  static constexpr int kLanes = static_cast<int>(kVectorBytes / sizeof(Unsigned));
  static constexpr int kUnroll = 4;  // vectors in flight per source, to hide the latency of the arithmetic

  [[gnu::always_inline]] static Wide load(const void* from) { return read<Wide>(from); }
  template <class Op>
  [[gnu::always_inline]] static void store(void* to, Wide value) {
    __builtin_memcpy(to, &value, sizeof value);
  }
  [[gnu::always_inline]] static Wide larger(Wide a, Wide b) { return as<Compared>(a) > as<Compared>(b) ? a : b; }
  [[gnu::always_inline]] static Wide smaller(Wide a, Wide b) { return as<Compared>(a) < as<Compared>(b) ? a : b; }
  // The divisor may not fit in the element, so the division is done in 64 bits. Truncates towards zero.
  // Out of line: averages of integers are rare, and a copy for every lane of every step is much to compile.
  [[gnu::noinline]] static Wide divided(Wide value, std::int64_t divisor) {
    constexpr bool kSigned = static_cast<Signedness>(-1) < 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      if constexpr (kSigned)
        value[lane] = static_cast<Unsigned>(static_cast<Signedness>(value[lane]) / divisor);
      else
        value[lane] = static_cast<Unsigned>(value[lane] / static_cast<std::uint64_t>(divisor));
    }
    return value;
  }
};

// What all floating types have in common once they are in vectors of float or double.
template <class Computed>
struct Floating {
  using Wide = Vector<Computed>;
  static constexpr bool kFloating = true;
  static constexpr int kLanes = static_cast<int>(kVectorBytes / sizeof(Computed));
  static constexpr int kUnroll = 4;

  // NaN when either is NaN: the comparison with a NaN in b gives b, a NaN in a is chosen afterwards.
  [[gnu::always_inline]] static Wide larger(Wide a, Wide b) {
    const Wide chosen = a > b ? a : b;
    return a != a ? a : chosen;
  }
  [[gnu::always_inline]] static Wide smaller(Wide a, Wide b) {
    const Wide chosen = a < b ? a : b;
    return a != a ? a : chosen;
  }
  [[gnu::always_inline]] static Wide scaled(Wide a, double scale) { return a * static_cast<Computed>(scale); }
};

template <class Computed>
struct Plain : Floating<Computed> {
  using Element = Computed;
  using Wide = typename Floating<Computed>::Wide;

  [[gnu::always_inline]] static Wide load(const void* from) { return read<Wide>(from); }
  template <class Op>
  [[gnu::always_inline]] static void store(void* to, Wide value) {
    __builtin_memcpy(to, &value, sizeof value);
  }
};

using Floats = Vector<float>;
using Bits = Vector<std::int32_t>;  // of the floats; signed, because most sets compare signed numbers only
using UnsignedBits = Vector<std::uint32_t>;

// Small floats lie two or four to a lane of 32 bits. They are computed as so many vectors of floats, the first holding
// the lowest code of every lane, so that nothing is shuffled on the way in or out.
template <int kParts>
struct Parts {
  Floats part[kParts];

  [[gnu::always_inline]] friend Parts operator+(Parts a, Parts b) {
    Parts sum;
    for (int p = 0; p < kParts; ++p) sum.part[p] = a.part[p] + b.part[p];
    return sum;
  }
  [[gnu::always_inline]] friend Parts operator*(Parts a, Parts b) {
    Parts product;
    for (int p = 0; p < kParts; ++p) product.part[p] = a.part[p] * b.part[p];
    return product;
  }
};

// T: decode(code in the low bits of a lane, zero above) → float, and encode<Op>(float) → the same.
template <class T, class Code>
struct Packed {
  using Element = Code;
  static constexpr bool kFloating = true;
  static constexpr int kWidth = 8 * static_cast<int>(sizeof(Code));  // bits of a code
  static constexpr int kParts = 32 / kWidth;
  static constexpr int kLanes = Floating<float>::kLanes * kParts;
  static constexpr int kUnroll = 4 / kParts;
  using Wide = Parts<kParts>;

  [[gnu::always_inline]] static Wide load(const void* from) {
    const auto packed = read<UnsignedBits>(from);
    Wide wide;
    for (int p = 0; p < kParts; ++p)
      wide.part[p] = T::decode(as<Bits>((packed >> (p * kWidth)) & ((1u << kWidth) - 1)));
    return wide;
  }
  template <class Op>
  [[gnu::always_inline]] static void store(void* to, Wide value) {
    Bits packed = T::template encode<Op>(value.part[0]);
    for (int p = 1; p < kParts; ++p) packed |= T::template encode<Op>(value.part[p]) << (p * kWidth);
    __builtin_memcpy(to, &packed, sizeof packed);
  }
  [[gnu::always_inline]] static Wide larger(Wide a, Wide b) {
    Wide chosen;
    for (int p = 0; p < kParts; ++p) chosen.part[p] = Floating<float>::larger(a.part[p], b.part[p]);
    return chosen;
  }
  [[gnu::always_inline]] static Wide smaller(Wide a, Wide b) {
    Wide chosen;
    for (int p = 0; p < kParts; ++p) chosen.part[p] = Floating<float>::smaller(a.part[p], b.part[p]);
    return chosen;
  }
  [[gnu::always_inline]] static Wide scaled(Wide a, double scale) {
    Wide product;
    for (int p = 0; p < kParts; ++p) product.part[p] = Floating<float>::scaled(a.part[p], scale);
    return product;
  }
};

// The upper half of a float. Rounds to nearest even; a NaN stays one, made quiet.
struct BFloat16 : Packed<BFloat16, std::uint16_t> {
  [[gnu::always_inline]] static Floats decode(Bits code) { return as<Floats>(code << 16); }
  template <class Op>
  [[gnu::always_inline]] static Bits encode(Floats value) {
    const auto bits = as<UnsignedBits>(value);
    const UnsignedBits upper = bits >> 16;
    const UnsignedBits rounded = (bits + 0x7fffu + (upper & 1u)) >> 16;
    return as<Bits>(value != value ? upper | 0x40u : rounded);
  }
};

// A float of 8 or 16 bits: a sign, kExponentBits, kFractionBits; as integer arithmetic on its code. All codes
// from kInfinity on are infinity or NaN.
template <int kExponentBits, int kFractionBits, int kInfinity>
struct SmallFloat {
  static constexpr int kWidth = 1 + kExponentBits + kFractionBits;
  static constexpr int kMagnitude = (1 << (kWidth - 1)) - 1;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = 23 - kFractionBits;  // a float's fraction has 23 bits, and its exponent's bias is 127
  static constexpr int kRebias = (127 - kBias) << 23;

  [[gnu::always_inline]] static Floats decode(Bits codes) {
    const Bits magnitude = codes & kMagnitude;
    const Bits normal = (magnitude << kShift) + kRebias;
    // Without the hidden bit: read as 1.fraction at the least exponent, then 1.0 at that exponent taken away, exactly.
    const Bits one = Bits{} + (kRebias + (1 << 23));
    const Bits subnormal = as<Bits>(as<Floats>((magnitude << kShift) + one) - as<Floats>(one));
    const Bits special = (magnitude << kShift) | 0x7f800000;
    Bits bits = magnitude < (1 << kFractionBits) ? subnormal : normal;
    bits = magnitude >= kInfinity ? special : bits;
    return as<Floats>(bits | ((codes >> (kWidth - 1)) << 31));
  }

  // The code's magnitude, rounded to nearest even, at most `top`; sign and NaN are left to the caller.
  [[gnu::always_inline]] static Bits round(Bits magnitude, int top) {
    const Bits odd = (magnitude >> kShift) & 1;
    const Bits normal = (magnitude - kRebias + ((1 << (kShift - 1)) - 1) + odd) >> kShift;
    // Added to a float whose last bit is worth the least subnormal, the value is rounded there by the machine.
    const Bits aligned = Bits{} + ((127 + 24 - kBias - kFractionBits) << 23);
    const Bits subnormal = as<Bits>(as<Floats>(magnitude) + as<Floats>(aligned)) - aligned;
    const Bits code = magnitude < kRebias + (1 << 23) ? subnormal : normal;
    return code > top ? Bits{} + top : code;
  }
};

using HalfFormat = SmallFloat<5, 10, 0x7c00>;

#if defined(__F16C__)
// The machine converts.
struct Float16 : Floating<float> {
  using Element = std::uint16_t;

  [[gnu::always_inline]] static Floats load(const void* from) {
#if defined(__AVX512F__)
    // The forms with a mask say what unused lanes hold; gcc 12 warns of its own header for the others.
    return as<Floats>(_mm512_maskz_cvtph_ps(0xffff, read<__m256i>(from)));
#else
    return as<Floats>(_mm256_cvtph_ps(read<__m128i>(from)));
#endif
  }
  template <class Op>
  [[gnu::always_inline]] static void store(void* to, Floats value) {
    constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
#if defined(__AVX512F__)
    const __m256i codes = _mm512_maskz_cvtps_ph(0xffff, as<__m512>(value), kNearestEven);
#else
    const __m128i codes = _mm256_cvtps_ph(as<__m256>(value), kNearestEven);
#endif
    __builtin_memcpy(to, &codes, sizeof codes);
  }
};
#else
struct Float16 : Packed<Float16, std::uint16_t> {
  [[gnu::always_inline]] static Floats decode(Bits code) { return HalfFormat::decode(code); }
  template <class Op>
  [[gnu::always_inline]] static Bits encode(Floats value) {
    const Bits bits = as<Bits>(value), magnitude = bits & 0x7fffffff;
    // A NaN keeps the upper bits of its payload, as the machine's own conversion does it.
    const Bits nan = 0x7e00 | ((magnitude >> HalfFormat::kShift) & 0x3ff);
    const Bits code = value != value ? nan : HalfFormat::round(magnitude, 0x7c00);
    return code | ((bits >> 16) & 0x8000);
  }
};
#endif

// The two 8-bit floats. Results too large become the largest finite number, as in CUDA's conversions, and for sums and
// products infinity counts as too large; max and min give back one of their inputs, which may be infinity. Every NaN
// becomes the same one.
template <class Format, int kInfinity, int kTop, int kNan>
struct Float8 : Packed<Float8<Format, kInfinity, kTop, kNan>, std::uint8_t> {
  [[gnu::always_inline]] static Floats decode(Bits code) { return Format::decode(code); }
  template <class Op>
  [[gnu::always_inline]] static Bits encode(Floats value) {
    const Bits bits = as<Bits>(value);
    const Bits code = Format::round(bits & 0x7fffffff, Op::kSelects && kInfinity < kNan ? kInfinity : kTop);
    return value != value ? Bits{} + kNan : code | ((bits >> 24) & 0x80);
  }
};
using Float8E4M3 = Float8<SmallFloat<4, 3, 0x7f>, 0x7f, 0x7e, 0x7f>;  // no infinity
using Float8E5M2 = Float8<SmallFloat<5, 2, 0x7c>, 0x7c, 0x7b, 0x7e>;

struct Sum {
  static constexpr bool kSelects = false;  // true: the result is one of the inputs
  template <class T, class Wide>
  [[gnu::always_inline]] static Wide apply(Wide a, Wide b) {
    return a + b;
  }
};
struct Prod {
  static constexpr bool kSelects = false;
  template <class T, class Wide>
  [[gnu::always_inline]] static Wide apply(Wide a, Wide b) {
    return a * b;
  }
};
struct Max {
  static constexpr bool kSelects = true;
  template <class T, class Wide>
  [[gnu::always_inline]] static Wide apply(Wide a, Wide b) {
    return T::larger(a, b);
  }
};
struct Min {
  static constexpr bool kSelects = true;
  template <class T, class Wide>
  [[gnu::always_inline]] static Wide apply(Wide a, Wide b) {
    return T::smaller(a, b);
  }
};

// Element `at` of a buffer of T's elements.
template <class T>
[[gnu::always_inline]] inline const unsigned char* element(const void* buffer, std::int64_t at) {
  return static_cast<const unsigned char*>(buffer) + at * static_cast<std::int64_t>(sizeof(typename T::Element));
}
template <class T>
[[gnu::always_inline]] inline unsigned char* element(void* buffer, std::int64_t at) {
  return static_cast<unsigned char*>(buffer) + at * static_cast<std::int64_t>(sizeof(typename T::Element));
}

// `kVectors` vectors of every source, folded and written to every destination. kSources: the number of sources when
// known, 0 for "see the pass".
template <class T, class Op, int kVectors, int kSources>
[[gnu::always_inline]] inline void step(const Pass& pass, std::int64_t at) {
  using Wide = typename T::Wide;
  const int sources = kSources != 0 ? kSources : pass.source_count;
  Wide folded[kVectors];
  for (int v = 0; v < kVectors; ++v) folded[v] = T::load(element<T>(pass.sources[0], at + v * T::kLanes));
  for (int s = 1; s < sources; ++s) {
    const unsigned char* source = element<T>(pass.sources[s], at);
    Wide next[kVectors];
    for (int v = 0; v < kVectors; ++v) next[v] = T::load(element<T>(source, v * T::kLanes));
    if constexpr (T::kFloating) {
      if (pass.scale_last && s == sources - 1) [[unlikely]]
        for (int v = 0; v < kVectors; ++v) next[v] = T::scaled(next[v], pass.scale);
    }
    for (int v = 0; v < kVectors; ++v) folded[v] = Op::template apply<T>(folded[v], next[v]);
  }
  if constexpr (T::kFloating) {
    if (pass.scale_last && sources == 1)
      for (int v = 0; v < kVectors; ++v) folded[v] = T::scaled(folded[v], pass.scale);
  } else {
    if (pass.divide) [[unlikely]]
      for (int v = 0; v < kVectors; ++v) folded[v] = T::divided(folded[v], pass.divisor);
  }
  for (int d = 0; d < pass.destination_count; ++d) {
    unsigned char* destination = element<T>(pass.destinations[d], at);
    for (int v = 0; v < kVectors; ++v) T::template store<Op>(element<T>(destination, v * T::kLanes), folded[v]);
  }
}

// One vector of every source, where the unrolled steps do not fit.
template <class T, class Op>
[[gnu::noinline]] void single_step(const Pass& pass, std::int64_t at) {
  step<T, Op, 1, 0>(pass, at);
}

// Fewer elements than a vector: through copies that are a vector long.
template <class T, class Op>
void tail(const Pass& pass, std::int64_t at) {
  constexpr int kCapacity = 9;  // kMaxSources of device.hpp
  typename T::Element in[kCapacity][T::kLanes] = {}, out[T::kLanes];
  const void* sources[kCapacity] = {};
  void* destination = out;
  const std::size_t bytes = static_cast<std::size_t>(pass.count - at) * sizeof(typename T::Element);
  for (int s = 0; s < pass.source_count; ++s) {
    __builtin_memcpy(in[s], element<T>(pass.sources[s], at), bytes);
    sources[s] = in[s];
  }
  Pass whole = pass;
  whole.sources = sources;
  whole.destinations = &destination;
  whole.destination_count = 1;
  single_step<T, Op>(whole, 0);
  for (int d = 0; d < pass.destination_count; ++d) __builtin_memcpy(element<T>(pass.destinations[d], at), out, bytes);
}

template <class T, class Op, int kSources>
[[gnu::always_inline]] inline std::int64_t steps(const Pass& pass) {
  std::int64_t at = 0;
  constexpr int kElements = T::kUnroll * T::kLanes;
  for (; at + kElements <= pass.count; at += kElements) step<T, Op, T::kUnroll, kSources>(pass, at);
  return at;
}

template <class T, class Op>
void kernel(const Pass& pass) noexcept {
  std::int64_t at = pass.source_count == 2 ? steps<T, Op, 2>(pass) : steps<T, Op, 0>(pass);
  for (; at + T::kLanes <= pass.count; at += T::kLanes) single_step<T, Op>(pass, at);
  if (at < pass.count) tail<T, Op>(pass, at);
}

template <class T>
constexpr void fill(Kernel (&row)[kKernelOps]) {
  row[0] = kernel<T, Sum>;
  row[1] = kernel<T, Prod>;
  row[2] = kernel<T, Max>;
  row[3] = kernel<T, Min>;
}

// In the order of Type, which dispatch.cpp checks.
constexpr KernelTable make_table(const char* name) {
  KernelTable table{};
  table.name = name;
  fill<Integer<std::int8_t, std::uint8_t>>(table.kernels[0]);
  fill<Integer<std::uint8_t, std::uint8_t>>(table.kernels[1]);
  fill<Integer<std::int32_t, std::uint32_t>>(table.kernels[2]);
  fill<Integer<std::uint32_t, std::uint32_t>>(table.kernels[3]);
  fill<Integer<std::int64_t, std::uint64_t>>(table.kernels[4]);
  fill<Integer<std::uint64_t, std::uint64_t>>(table.kernels[5]);
  fill<Float16>(table.kernels[6]);
  fill<Plain<float>>(table.kernels[7]);
  fill<Plain<double>>(table.kernels[8]);
  fill<BFloat16>(table.kernels[9]);
  fill<Float8E4M3>(table.kernels[10]);
  fill<Float8E5M2>(table.kernels[11]);
  return table;
}

}  // namespace
}  // namespace hoccl::host
