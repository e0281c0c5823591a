// See data.hpp. The arithmetic is its own, so that a mistake in the library's kernels cannot hide here too.
#include "perf/data.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace perf {
namespace {

struct Layout {
  int exponent_bits, fraction_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};

Layout layout(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
      return {5, 10};
    case ncclBfloat16:
      return {8, 7};
    case ncclFloat32:
      return {8, 23};
    case ncclFloat64:
      return {11, 52};
    case ncclFloat8e4m3:
      return {4, 3};
    default:
      return {5, 2};
  }
}

bool floating(ncclDataType_t type) { return type >= ncclFloat16; }
bool has_sign(ncclDataType_t type) { return type == ncclInt8 || type == ncclInt32 || type == ncclInt64; }

// Rounds to nearest even; x is in range.
std::uint64_t encode(const Layout& l, double x) {
  const std::uint64_t sign = std::signbit(x) ? std::uint64_t{1} << (l.exponent_bits + l.fraction_bits) : 0;
  if (x == 0) return sign;
  int exponent = std::max(std::ilogb(x), 1 - l.bias());
  const auto whole = std::int64_t{1} << l.fraction_bits;
  std::int64_t rounded = std::llrint(std::ldexp(std::fabs(x), l.fraction_bits - exponent));
  if (rounded == 2 * whole) rounded = whole, ++exponent;
  const std::int64_t code = rounded < whole ? rounded : (exponent + l.bias()) * whole + rounded - whole;
  return sign | static_cast<std::uint64_t>(code);
}

double decode(const Layout& l, std::uint64_t code) {
  const std::uint64_t whole = std::uint64_t{1} << l.fraction_bits;
  const auto exponent = static_cast<int>((code >> l.fraction_bits) & ((1u << l.exponent_bits) - 1));
  const auto fraction = static_cast<double>(code & (whole - 1));
  const double sign = (code >> (l.exponent_bits + l.fraction_bits)) != 0 ? -1.0 : 1.0;
  // The largest exponent means infinity or NaN, but in e4m3 only together with the largest fraction.
  if (exponent == (1 << l.exponent_bits) - 1 && (l.exponent_bits != 4 || fraction == 7)) return NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - l.bias() - l.fraction_bits);
  return sign * std::ldexp(fraction + static_cast<double>(whole), exponent - l.bias() - l.fraction_bits);
}

std::uint64_t hash(int rank, std::size_t i) {
  std::uint64_t x = (static_cast<std::uint64_t>(rank) << 32) + i + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

void put(Pattern& pattern, std::size_t i, int bytes, std::uint64_t code) {
  std::memcpy(pattern.data() + i * static_cast<std::size_t>(bytes), &code, static_cast<std::size_t>(bytes));
}
std::uint64_t get(const std::byte* at, int bytes) {
  std::uint64_t code = 0;
  std::memcpy(&code, at, static_cast<std::size_t>(bytes));
  return code;
}

std::int64_t with_sign(std::uint64_t code, int bytes) {
  const int spare = 64 - 8 * bytes;
  return static_cast<std::int64_t>(code << spare) >> spare;
}

}  // namespace

Data::Data(NamedType type, NamedOp op, int world) : type_(type), op_(op), world_(world) {
  reduced_.resize(kPeriod * static_cast<std::size_t>(type_.bytes));
  if (floating(type_.type))
    reduce_floats();
  else
    reduce_integers();
}

// Sums: whole numbers, not negative, that stay within the precision when all ranks' are added; when there are more
// ranks than that allows, only so many of them give a 1. Products: 1, 2 and -1, with at most six twos.
double Data::value(int rank, std::size_t i) const {
  const std::uint64_t bits = hash(rank, i);
  const std::int64_t turn =
      static_cast<std::int64_t>((static_cast<std::size_t>(rank) + i) % static_cast<std::size_t>(world_));
  const std::int64_t exact = std::int64_t{1} << std::min(20, layout(type_.type).fraction_bits + 1);
  switch (op_.op) {
    case ncclProd:
      return (turn < 6 && (bits & 1) != 0 ? 2.0 : 1.0) * ((bits & 2) != 0 ? -1.0 : 1.0);
    case ncclMax:
    case ncclMin:
      return static_cast<double>(static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(2 * exact + 1)) - exact);
    default:
      if (world_ > exact) return turn < exact ? 1.0 : 0.0;
      return static_cast<double>(bits % static_cast<std::uint64_t>(std::min(exact / world_, std::int64_t{1000}) + 1));
  }
}

std::uint64_t Data::integer(int rank, std::size_t i) const {
  return op_.op == ncclProd ? hash(rank, i) | 1 : hash(rank, i);  // odd, or a product soon is 0
}

Pattern Data::input(int rank) const {
  Pattern pattern(kPeriod * static_cast<std::size_t>(type_.bytes));
  for (std::size_t i = 0; i < kPeriod; ++i)
    put(pattern, i, type_.bytes, floating(type_.type) ? encode(layout(type_.type), value(rank, i)) : integer(rank, i));
  return pattern;
}

void Data::reduce_floats() {
  const Layout l = layout(type_.type);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    double result = value(0, i);
    for (int r = 1; r < world_; ++r) {
      const double x = value(r, i);
      result = op_.op == ncclProd  ? result * x
               : op_.op == ncclMax ? std::max(result, x)
               : op_.op == ncclMin ? std::min(result, x)
                                   : result + x;
    }
    if (op_.op == ncclAvg) result /= world_;
    put(reduced_, i, type_.bytes, encode(l, result));
  }
  if (op_.op == ncclAvg && (world_ & (world_ - 1)) != 0) {
    // 1/n is rounded, and each input times 1/n, n-1 sums, and the right result as it is written here: n+2 roundings of
    // at most half a unit in the last place of a sum that only grows; below the normal numbers, of half the least one.
    relative_ = (world_ + 2) * std::ldexp(1.0, -(l.fraction_bits + 1));
    absolute_ = (world_ + 2) * std::ldexp(1.0, -l.bias() - l.fraction_bits);
  }
}

void Data::reduce_integers() {
  const int bytes = type_.bytes;
  const std::uint64_t mask = ~std::uint64_t{0} >> (64 - 8 * bytes);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    std::uint64_t result = integer(0, i) & mask;
    for (int r = 1; r < world_; ++r) {
      const std::uint64_t x = integer(r, i) & mask;
      const bool above = has_sign(type_.type) ? with_sign(x, bytes) > with_sign(result, bytes) : x > result;
      if (op_.op == ncclProd)
        result = (result * x) & mask;
      else if (op_.op == ncclMax || op_.op == ncclMin)
        result = above == (op_.op == ncclMax) ? x : result;
      else
        result = (result + x) & mask;
    }
    if (op_.op == ncclAvg)
      result = has_sign(type_.type) ? static_cast<std::uint64_t>(with_sign(result, bytes) / world_)
                                    : result / static_cast<std::uint64_t>(world_);
    put(reduced_, i, bytes, result);
  }
}

void Data::fill(void* buffer, std::size_t count, const Pattern& pattern, std::size_t first) const {
  const auto bytes = static_cast<std::size_t>(type_.bytes);
  auto* to = static_cast<std::byte*>(buffer);
  for (std::size_t at = first % kPeriod; count != 0; at = 0) {
    const std::size_t run = std::min(count, kPeriod - at);
    std::memcpy(to, pattern.data() + at * bytes, run * bytes);
    to += run * bytes;
    count -= run;
  }
}

long long Data::wrong(const void* buffer, std::size_t count, const Pattern& pattern, std::size_t first,
                      bool reduced) const {
  const auto bytes = static_cast<std::size_t>(type_.bytes);
  const Layout l = layout(type_.type);
  const auto* from = static_cast<const std::byte*>(buffer);
  const bool bounded = reduced && relative_ != 0;
  long long found = 0;
  for (std::size_t at = first % kPeriod; count != 0; at = 0) {
    const std::size_t run = std::min(count, kPeriod - at);
    const std::byte* right = pattern.data() + at * bytes;
    if (std::memcmp(from, right, run * bytes) != 0)
      for (std::size_t i = 0; i < run; ++i) {
        const std::uint64_t got = get(from + i * bytes, type_.bytes), expected = get(right + i * bytes, type_.bytes);
        if (got == expected) continue;
        if (bounded) {
          const double target = decode(l, expected), distance = std::fabs(decode(l, got) - target);
          if (distance <= relative_ * std::fabs(target) + absolute_) continue;  // false for a NaN
        }
        ++found;
      }
    from += run * bytes;
    count -= run;
  }
  return found;
}

}  // namespace perf
