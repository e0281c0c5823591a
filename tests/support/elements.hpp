// Elements of all 12 types as numbers, for tests: an encoding of exactly representable values that shares nothing with
// the kernels under test.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "src/base/types.hpp"

namespace hoccl::test {

struct FloatFormat {
  int exponent_bits, fraction_bits;
};

inline FloatFormat format_of(Type type) {
  switch (type) {
    case Type::float16:
      return {5, 10};
    case Type::bfloat16:
      return {8, 7};
    case Type::float8e4m3:
      return {4, 3};
    case Type::float8e5m2:
      return {5, 2};
    default:
      return {0, 0};
  }
}

// Small floats: value must be zero or a normal number of the format, exactly.
inline std::uint32_t encode_small(double value, FloatFormat f) {
  const std::uint32_t sign = std::signbit(value) ? 1u << (f.exponent_bits + f.fraction_bits) : 0u;
  if (value == 0) return sign;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<std::uint32_t>(std::ldexp(fraction, f.fraction_bits + 1)) - (1u << f.fraction_bits);
  return sign | static_cast<std::uint32_t>(exponent - 1 + bias) << f.fraction_bits | mantissa;
}

inline double decode_small(std::uint32_t bits, FloatFormat f) {
  const std::uint32_t fraction = bits & ((1u << f.fraction_bits) - 1);
  const int exponent = static_cast<int>(bits >> f.fraction_bits) & ((1 << f.exponent_bits) - 1);
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const double magnitude = exponent == 0
                               ? std::ldexp(fraction, 1 - bias - f.fraction_bits)
                               : std::ldexp((1u << f.fraction_bits) + fraction, exponent - bias - f.fraction_bits);
  return (bits >> (f.exponent_bits + f.fraction_bits)) != 0 ? -magnitude : magnitude;
}

template <class T>
void put_as(void* at, double value) {
  const T element = static_cast<T>(value);
  std::memcpy(at, &element, sizeof element);
}
template <class T>
double get_as(const void* at) {
  T element;
  std::memcpy(&element, at, sizeof element);
  return static_cast<double>(element);
}

inline void put(Type type, void* at, double value) {
  switch (type) {
    case Type::int8:
      return put_as<std::int8_t>(at, value);
    case Type::uint8:
      return put_as<std::uint8_t>(at, value);
    case Type::int32:
      return put_as<std::int32_t>(at, value);
    case Type::uint32:
      return put_as<std::uint32_t>(at, value);
    case Type::int64:
      return put_as<std::int64_t>(at, value);
    case Type::uint64:
      return put_as<std::uint64_t>(at, value);
    case Type::float32:
      return put_as<float>(at, value);
    case Type::float64:
      return put_as<double>(at, value);
    default:
      break;
  }
  const std::uint32_t bits = encode_small(value, format_of(type));
  std::memcpy(at, &bits, static_cast<std::size_t>(row(type).bytes));  // little endian
}

inline double get(Type type, const void* at) {
  switch (type) {
    case Type::int8:
      return get_as<std::int8_t>(at);
    case Type::uint8:
      return get_as<std::uint8_t>(at);
    case Type::int32:
      return get_as<std::int32_t>(at);
    case Type::uint32:
      return get_as<std::uint32_t>(at);
    case Type::int64:
      return get_as<std::int64_t>(at);
    case Type::uint64:
      return get_as<std::uint64_t>(at);
    case Type::float32:
      return get_as<float>(at);
    case Type::float64:
      return get_as<double>(at);
    default:
      break;
  }
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, static_cast<std::size_t>(row(type).bytes));
  return decode_small(bits, format_of(type));
}

// `count` elements that repeat the pattern's values.
inline std::vector<unsigned char> repeated(Type type, const std::vector<double>& pattern, std::int64_t count,
                                           std::int64_t first = 0) {
  const auto size = static_cast<std::size_t>(row(type).bytes);
  std::vector<unsigned char> bytes(static_cast<std::size_t>(count) * size);
  for (std::int64_t i = 0; i < count; ++i)
    put(type, bytes.data() + static_cast<std::size_t>(i) * size,
        pattern[static_cast<std::size_t>(first + i) % pattern.size()]);
  return bytes;
}

}  // namespace hoccl::test
