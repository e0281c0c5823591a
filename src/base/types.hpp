// Ranks, counts and byte lengths as three types that do not mix, and THE tables of data types and reductions.
// A new data type is one row here; the kernels (src/device/host/combine.ipp) are templates over the rows.
// Floor 0. Read next: src/plan/step.hpp.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hoccl {

// A rank of one communicator, 0 … size-1.
enum class Rank : std::int32_t {};
constexpr int index(Rank rank) { return static_cast<int>(rank); }

// A signed 64-bit amount of one unit. Amounts of different units cannot be added or compared.
template <class Unit>
struct Quantity {
  std::int64_t value = 0;

  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t v) : value(v) {}
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator+(Quantity other) const { return Quantity(value + other.value); }
  constexpr Quantity operator-(Quantity other) const { return Quantity(value - other.value); }
  constexpr Quantity operator*(std::int64_t factor) const { return Quantity(value * factor); }
  constexpr Quantity& operator+=(Quantity other) { return *this = *this + other; }
};
using Count = Quantity<struct CountUnit>;  // elements
using Bytes = Quantity<struct BytesUnit>;  // octets

constexpr std::size_t size_of(Bytes bytes) { return static_cast<std::size_t>(bytes.value); }

// The numbers are those of ncclDataType_t.
enum class Type : std::uint8_t {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
  float8e4m3 = 10,
  float8e5m2 = 11,
};

struct TypeRow {
  Type type;
  std::string_view name;  // as nccl-tests prints it
  int bytes;
  bool floating;
  int digits;  // bits of the significand, the hidden one included; integers: value bits
};

inline constexpr std::array<TypeRow, 12> kTypes{{
    {Type::int8, "int8", 1, false, 7},
    {Type::uint8, "uint8", 1, false, 8},
    {Type::int32, "int32", 4, false, 31},
    {Type::uint32, "uint32", 4, false, 32},
    {Type::int64, "int64", 8, false, 63},
    {Type::uint64, "uint64", 8, false, 64},
    {Type::float16, "half", 2, true, 11},
    {Type::float32, "float", 4, true, 24},
    {Type::float64, "double", 8, true, 53},
    {Type::bfloat16, "bfloat16", 2, true, 8},
    {Type::float8e4m3, "f8e4m3", 1, true, 4},
    {Type::float8e5m2, "f8e5m2", 1, true, 3},
}};

// The numbers are those of ncclRedOp_t.
enum class Op : std::uint8_t { sum = 0, prod = 1, max = 2, min = 3, avg = 4 };

struct OpRow {
  Op op;
  std::string_view name;
};

inline constexpr std::array<OpRow, 5> kOps{{
    {Op::sum, "sum"},
    {Op::prod, "prod"},
    {Op::max, "max"},
    {Op::min, "min"},
    {Op::avg, "avg"},
}};

constexpr const TypeRow& row(Type type) { return kTypes[static_cast<std::size_t>(type)]; }
constexpr const OpRow& row(Op op) { return kOps[static_cast<std::size_t>(op)]; }
constexpr Bytes bytes_of(Count count, Type type) { return Bytes(count.value * row(type).bytes); }

constexpr std::optional<Type> type_named(std::string_view name) {
  for (const TypeRow& r : kTypes)
    if (r.name == name) return r.type;
  return std::nullopt;
}
constexpr std::optional<Op> op_named(std::string_view name) {
  for (const OpRow& r : kOps)
    if (r.name == name) return r.op;
  return std::nullopt;
}

}  // namespace hoccl
