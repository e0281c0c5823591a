// The host kernels against a plain reference that works one element at a time and rounds through double: every type,
// operation, number of sources and destinations, on every instruction set that this machine has.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "src/device/device.hpp"
#include "src/device/host/kernels.hpp"

using namespace hoccl;

namespace {

std::vector<const host::KernelTable*> tables() {
  std::vector<const host::KernelTable*> all;
  for (const host::KernelTable* table : host::usable_tables().tables)
    if (table != nullptr) all.push_back(table);
  return all;
}

// ---- The reference -------------------------------------------------------------------------------------------

struct Format {
  int exponent_bits, fraction_bits, infinity_code, top_code, nan_code;
};
constexpr Format kHalf{5, 10, 0x7c00, 0x7c00, 0x7e00};
constexpr Format kBrain{8, 7, 0x7f80, 0x7f80, 0x7fc0};
constexpr Format kE4M3{4, 3, 0x7f, 0x7e, 0x7f};
constexpr Format kE5M2{5, 2, 0x7c, 0x7b, 0x7e};

const Format& format_of(Type type) {
  switch (type) {
    case Type::float16:
      return kHalf;
    case Type::bfloat16:
      return kBrain;
    case Type::float8e4m3:
      return kE4M3;
    default:
      return kE5M2;
  }
}

double decode(const Format& f, unsigned code) {
  const unsigned width = 1 + f.exponent_bits + f.fraction_bits;
  const int magnitude = static_cast<int>(code & ((1u << (width - 1)) - 1));
  const double sign = (code >> (width - 1)) != 0 ? -1.0 : 1.0;
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int exponent = magnitude >> f.fraction_bits, fraction = magnitude & ((1 << f.fraction_bits) - 1);
  if (f.infinity_code != f.nan_code && magnitude == f.infinity_code) return sign * INFINITY;
  if (magnitude >= f.infinity_code) return NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - f.fraction_bits);
  return sign * std::ldexp(fraction + (1 << f.fraction_bits), exponent - bias - f.fraction_bits);
}

// To nearest even; `top`: what a magnitude beyond the largest finite one becomes.
unsigned encode(const Format& f, double x, int top) {
  if (std::isnan(x)) return static_cast<unsigned>(f.nan_code);
  const int width = 1 + f.exponent_bits + f.fraction_bits, bias = (1 << (f.exponent_bits - 1)) - 1;
  const unsigned sign = std::signbit(x) ? 1u << (width - 1) : 0;
  if (std::isinf(x)) return sign | static_cast<unsigned>(top);
  if (x == 0) return sign;
  int exponent = std::max(std::ilogb(x), 1 - bias);
  const int whole = 1 << f.fraction_bits;
  long rounded = std::lrint(std::ldexp(std::fabs(x), f.fraction_bits - exponent));  // the default mode: nearest even
  if (rounded == 2L * whole) rounded = whole, ++exponent;
  const long code =
      rounded < whole ? rounded : (static_cast<long>(exponent + bias) << f.fraction_bits) + rounded - whole;
  return sign | static_cast<unsigned>(std::min<long>(code, top));
}

template <class T>
T folded(Op op, T a, T b) {
  if (op == Op::prod) return a * b;
  if (op == Op::max || op == Op::min) {
    if (a != a) return a;
    if (b != b) return b;
    return (op == Op::max ? a > b : a < b) ? a : b;
  }
  return a + b;
}

// Unsigned T; the 64-bit arithmetic wraps to the same low bits.
template <class Signed, class T>
T folded_integer(Op op, T a, T b) {
  const auto wide_a = static_cast<std::uint64_t>(a), wide_b = static_cast<std::uint64_t>(b);
  if (op == Op::prod) return static_cast<T>(wide_a * wide_b);
  if (op == Op::max) return static_cast<Signed>(a) > static_cast<Signed>(b) ? a : b;
  if (op == Op::min) return static_cast<Signed>(a) < static_cast<Signed>(b) ? a : b;
  return static_cast<T>(wide_a + wide_b);
}

template <class T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

template <class T>
void reference_float(const Reduction& r, const std::vector<const std::byte*>& in, bool scale, std::byte* out) {
  T sum{};
  for (std::size_t s = 0; s < in.size(); ++s) {
    T x = get<T>(in[s]);
    if (scale && s + 1 == in.size()) x = x * static_cast<T>(r.scale);
    sum = s == 0 ? x : folded(r.op, sum, x);
  }
  put(out, sum);
}

template <class Signed, class T>
void reference_integer(const Reduction& r, const std::vector<const std::byte*>& in, bool divide, std::byte* out) {
  T sum = get<T>(in[0]);
  for (std::size_t s = 1; s < in.size(); ++s) sum = folded_integer<Signed>(r.op, sum, get<T>(in[s]));
  if (divide) {
    if constexpr (std::is_same_v<Signed, std::uint64_t>)
      sum = sum / static_cast<std::uint64_t>(r.divisor);
    else
      sum = static_cast<T>(static_cast<std::int64_t>(static_cast<Signed>(sum)) / r.divisor);
  }
  put(out, sum);
}

template <class Code>
void reference_small(const Reduction& r, const std::vector<const std::byte*>& in, bool scale, std::byte* out) {
  const Format& f = format_of(r.type);
  if (in.size() == 1 && !scale) return put(out, get<Code>(in[0]));
  float sum = 0;
  for (std::size_t s = 0; s < in.size(); ++s) {
    auto x = static_cast<float>(decode(f, get<Code>(in[s])));
    if (scale && s + 1 == in.size()) x = x * static_cast<float>(r.scale);
    sum = s == 0 ? x : folded(r.op, sum, x);
  }
  const bool selects = r.op == Op::max || r.op == Op::min;
  put(out, static_cast<Code>(encode(f, sum, selects && f.infinity_code != f.nan_code ? f.infinity_code : f.top_code)));
}

void reference(const Reduction& r, const std::vector<const std::byte*>& in, bool scale, bool divide, std::byte* out) {
  switch (r.type) {
    case Type::int8:
      return reference_integer<std::int8_t, std::uint8_t>(r, in, divide, out);
    case Type::uint8:
      return reference_integer<std::uint8_t, std::uint8_t>(r, in, divide, out);
    case Type::int32:
      return reference_integer<std::int32_t, std::uint32_t>(r, in, divide, out);
    case Type::uint32:
      return reference_integer<std::uint32_t, std::uint32_t>(r, in, divide, out);
    case Type::int64:
      return reference_integer<std::int64_t, std::uint64_t>(r, in, divide, out);
    case Type::uint64:
      return reference_integer<std::uint64_t, std::uint64_t>(r, in, divide, out);
    case Type::float32:
      return reference_float<float>(r, in, scale, out);
    case Type::float64:
      return reference_float<double>(r, in, scale, out);
    case Type::float16:
    case Type::bfloat16:
      return reference_small<std::uint16_t>(r, in, scale, out);
    default:
      return reference_small<std::uint8_t>(r, in, scale, out);
  }
}

bool is_nan(Type type, const std::byte* at) {
  switch (type) {
    case Type::float32:
      return std::isnan(get<float>(at));
    case Type::float64:
      return std::isnan(get<double>(at));
    case Type::float16:
    case Type::bfloat16:
      return std::isnan(decode(format_of(type), get<std::uint16_t>(at)));
    default:
      return false;  // the 8-bit floats have one NaN, which is compared by its bits
  }
}

// The first element that differs, -1 for none. The payload of a NaN is not compared.
std::int64_t first_difference(Type type, const std::byte* got, const std::byte* expected, std::int64_t count) {
  const int bytes = row(type).bytes;
  if (std::memcmp(got, expected, static_cast<std::size_t>(count * bytes)) == 0) return -1;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte *a = got + i * bytes, *b = expected + i * bytes;
    if (std::memcmp(a, b, static_cast<std::size_t>(bytes)) != 0 && !(is_nan(type, a) && is_nan(type, b))) return i;
  }
  return -1;
}

// ---- Buffers -------------------------------------------------------------------------------------------------

constexpr std::size_t kGuard = 96;
constexpr std::byte kGuardByte{0xa5};

// Elements at an odd element offset with guards on both sides.
class Buffer {
 public:
  Buffer(std::int64_t count, int element_bytes, int offset)
      : begin_(kGuard + static_cast<std::size_t>(offset * element_bytes)),
        bytes_(static_cast<std::size_t>(count * element_bytes)),
        memory_(begin_ + bytes_ + kGuard, kGuardByte) {}
  std::byte* data() { return memory_.data() + begin_; }
  bool guarded() const {
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if ((i < begin_ || i >= begin_ + bytes_) && memory_[i] != kGuardByte) return false;
    return true;
  }

 private:
  std::size_t begin_, bytes_;
  std::vector<std::byte> memory_;
};

// Half of the elements any bits at all, half numbers of like size, so that sums round in every position.
void fill(Type type, std::byte* at, std::int64_t count, std::mt19937_64& random) {
  const int bytes = row(type).bytes;
  for (std::int64_t i = 0; i < count; ++i, at += bytes) {
    std::uint64_t bits = random();
    if (row(type).floating && (bits & 1) != 0) {
      const double x = static_cast<double>(static_cast<std::int64_t>(random())) * 0x1p-62;
      if (type == Type::float32)
        put(at, static_cast<float>(x));
      else if (type == Type::float64)
        put(at, x);
      else if (bytes == 2)
        put(at, static_cast<std::uint16_t>(encode(format_of(type), x, 0)));
      else
        put(at, static_cast<std::uint8_t>(encode(format_of(type), x, 1)));
      continue;
    }
    std::memcpy(at, &bits, static_cast<std::size_t>(bytes));
  }
}

enum class Alias { none, first, last };

void run_case(const Reduction& r, int sources, int destinations, std::int64_t count, Alias alias, bool finish) {
  const int bytes = row(r.type).bytes;
  std::mt19937_64 random(static_cast<std::uint64_t>(count) * 1000 + static_cast<std::uint64_t>(sources) * 10 +
                         static_cast<std::uint64_t>(r.type));
  std::vector<std::vector<std::byte>> inputs;
  for (int s = 0; s < sources; ++s) {
    inputs.emplace_back(static_cast<std::size_t>(count * bytes) + 1);
    fill(r.type, inputs.back().data(), count, random);
  }
  std::vector<std::byte> expected(static_cast<std::size_t>(count * bytes) + 1);
  std::vector<const std::byte*> at(static_cast<std::size_t>(sources));
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::size_t s = 0; s < at.size(); ++s) at[s] = inputs[s].data() + i * bytes;
    reference(r, at, finish, finish, expected.data() + i * bytes);
  }
  for (const host::KernelTable* table : tables()) {
    std::vector<Buffer> in, out;
    std::vector<const void*> from;
    std::vector<void*> to;
    for (int s = 0; s < sources; ++s) {
      Buffer& buffer = in.emplace_back(count, bytes, 2 * s + 1);
      if (count != 0)
        std::memcpy(buffer.data(), inputs[static_cast<std::size_t>(s)].data(), static_cast<std::size_t>(count * bytes));
    }
    for (int d = 0; d < destinations; ++d) out.emplace_back(count, bytes, 2 * d + 3);
    for (Buffer& buffer : in) from.push_back(buffer.data());
    for (Buffer& buffer : out) to.push_back(buffer.data());
    const std::size_t aliased = alias == Alias::last ? in.size() - 1 : 0;
    if (alias != Alias::none) to[0] = in[aliased].data();
    host::combine_with(
        *table, r,
        {.destinations = to, .sources = from, .count = Count(count), .scale_last = finish, .divide = finish});
    INFO(table->name << ' ' << row(r.type).name << ' ' << row(r.op).name << ", " << sources << " sources, "
                     << destinations << " destinations, " << count << " elements, alias " << static_cast<int>(alias));
    bool whole = true;
    for (void* d : to) {
      const std::int64_t wrong = first_difference(r.type, static_cast<std::byte*>(d), expected.data(), count);
      INFO("element " << wrong);
      if (wrong != -1) REQUIRE(wrong == -1);
    }
    for (std::size_t s = 0; s < in.size(); ++s) {
      whole = whole && in[s].guarded();
      if (count != 0 && (alias == Alias::none || s != aliased))
        whole = whole && std::memcmp(in[s].data(), inputs[s].data(), inputs[s].size() - 1) == 0;
    }
    for (const Buffer& buffer : out) whole = whole && buffer.guarded();
    if (!whole) FAIL("a source or the bytes around a buffer were changed");
  }
}

// All codes of an 8-bit float with all others, one operation, one table.
void all_pairs(const host::KernelTable& table, Type type, Op op) {
  std::vector<std::uint8_t> a(65536), b(65536), got(65536), expected(65536);
  const Format& f = format_of(type);
  const bool selects = op == Op::max || op == Op::min;
  for (unsigned i = 0; i < 65536; ++i) {
    a[i] = static_cast<std::uint8_t>(i >> 8);
    b[i] = static_cast<std::uint8_t>(i);
    const double exact = folded(op, decode(f, a[i]), decode(f, b[i]));
    expected[i] = static_cast<std::uint8_t>(
        encode(f, exact, selects && f.infinity_code != f.nan_code ? f.infinity_code : f.top_code));
  }
  const void* from[] = {a.data(), b.data()};
  void* to[] = {got.data()};
  host::combine_with(table, {.type = type, .op = op}, {.destinations = to, .sources = from, .count = Count(65536)});
  INFO(table.name << ' ' << row(type).name << ' ' << row(op).name);
  CHECK(got == expected);
}

template <class T>
std::vector<T> combined(Reduction r, std::vector<std::vector<T>> in, bool finish = false) {
  std::vector<T> out(in[0].size());
  std::vector<const void*> from;
  for (const auto& source : in) from.push_back(source.data());
  void* to[] = {out.data()};
  make_host_device()->combine(r, {.destinations = to,
                                  .sources = from,
                                  .count = Count(static_cast<std::int64_t>(out.size())),
                                  .scale_last = finish,
                                  .divide = finish});
  return out;
}

}  // namespace

TEST_CASE("every type and operation gives the reference's bits on every instruction set") {
  for (const TypeRow& type : kTypes) {
    for (const OpRow& op : kOps) {
      const Reduction r{.type = type.type, .op = op.op, .scale = 1.0 / 3, .divisor = 3};
      for (const int sources : {1, 2, 3, 5, 9})
        for (const int count : {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 255, 1000, 4097})
          for (const int destinations : {1, 2, 9}) {
            if (count == 4097 && destinations == 9) continue;  // nothing new, and most of the time
            const auto alias = static_cast<Alias>((count + destinations) % 3);
            run_case(r, sources, destinations, count, alias, op.op == Op::avg);
          }
    }
  }
  SUCCEED();
}

TEST_CASE("a destination may be any one of the sources") {
  for (const TypeRow& type : kTypes)
    for (const Alias alias : {Alias::none, Alias::first, Alias::last})
      for (const int sources : {1, 2, 3, 9})
        for (const int destinations : {1, 2})
          for (const int count : {5, 64, 257, 1001})
            run_case({.type = type.type, .op = Op::sum}, sources, destinations, count, alias, false);
  SUCCEED();
}

TEST_CASE("x + 0 is x for every 16-bit and 8-bit float, and a NaN stays one") {
  for (const host::KernelTable* table : tables())
    for (const Type type : {Type::float16, Type::bfloat16}) {
      std::vector<std::uint16_t> x(65536), zero(65536, 0x8000), got(65536);  // -0 + x keeps the sign of every x
      for (unsigned i = 0; i < 65536; ++i) x[i] = static_cast<std::uint16_t>(i);
      const void* from[] = {x.data(), zero.data()};
      void* to[] = {got.data()};
      host::combine_with(*table, {.type = type}, {.destinations = to, .sources = from, .count = Count(65536)});
      unsigned wrong = 0, quiet = type == Type::float16 ? 0x200 : 0x40;
      for (unsigned i = 0; i < 65536; ++i) wrong += got[i] != (std::isnan(decode(format_of(type), i)) ? i | quiet : i);
      INFO(table->name << ' ' << row(type).name);
      CHECK(wrong == 0);
    }
}

TEST_CASE("all 65,536 couples of 8-bit floats give the correctly rounded result") {
  for (const host::KernelTable* table : tables())
    for (const Type type : {Type::float8e4m3, Type::float8e5m2})
      for (const Op op : {Op::sum, Op::prod, Op::max, Op::min}) all_pairs(*table, type, op);
}

TEST_CASE("16-bit floats round once, to nearest even, over all sources") {
  const Reduction half{.type = Type::float16};
  // 2048 = 0x6800, whose neighbours are 2 apart; 1 = 0x3c00, 3 = 0x4200.
  CHECK(combined<std::uint16_t>(half, {{0x6800}, {0x3c00}}) == std::vector<std::uint16_t>{0x6800});
  CHECK(combined<std::uint16_t>(half, {{0x6800}, {0x4200}}) == std::vector<std::uint16_t>{0x6802});
  CHECK(combined<std::uint16_t>(half, {{0x6800}, {0x3c00}, {0x3c00}}) == std::vector<std::uint16_t>{0x6801});
  // 65504 + 16 is halfway to the next, which is infinity.
  CHECK(combined<std::uint16_t>(half, {{0x7bff}, {0x4c00}}) == std::vector<std::uint16_t>{0x7c00});
  CHECK(combined<std::uint16_t>(half, {{0x7bff}, {0x4bff}}) == std::vector<std::uint16_t>{0x7bff});
  // Half of the least subnormal goes to even, that is to zero: 2^-24 * 0.5.
  CHECK(combined<std::uint16_t>({.type = Type::float16, .op = Op::prod}, {{0x0001}, {0x3800}}) ==
        std::vector<std::uint16_t>{0x0000});
  const Reduction brain{.type = Type::bfloat16};
  // 256 = 0x4380, whose neighbours are 2 apart; 1 = 0x3f80.
  CHECK(combined<std::uint16_t>(brain, {{0x4380}, {0x3f80}}) == std::vector<std::uint16_t>{0x4380});
  CHECK(combined<std::uint16_t>(brain, {{0x4380}, {0x3f80}, {0x3f80}}) == std::vector<std::uint16_t>{0x4381});
}

TEST_CASE("8-bit floats stop at the largest finite number") {
  CHECK(combined<std::uint8_t>({.type = Type::float8e4m3}, {{0x7e, 0xfe}, {0x7e, 0xfe}}) ==
        std::vector<std::uint8_t>{0x7e, 0xfe});
  CHECK(combined<std::uint8_t>({.type = Type::float8e5m2}, {{0x7b, 0x7c}, {0x7b, 0x3c}}) ==
        std::vector<std::uint8_t>{0x7b, 0x7b});
  CHECK(combined<std::uint8_t>({.type = Type::float8e5m2, .op = Op::max}, {{0x7c}, {0x3c}}) ==
        std::vector<std::uint8_t>{0x7c});
}

TEST_CASE("integers wrap around, divide towards zero, and compare with their sign") {
  CHECK(combined<std::int8_t>({.type = Type::int8}, {{127, -128}, {1, -1}}) == std::vector<std::int8_t>{-128, 127});
  CHECK(combined<std::int32_t>({.type = Type::int32, .op = Op::prod}, {{65536}, {65537}}) ==
        std::vector<std::int32_t>{65536});
  CHECK(combined<std::int32_t>({.type = Type::int32, .op = Op::avg, .divisor = 2}, {{-3, 3}, {-4, 4}}, true) ==
        std::vector<std::int32_t>{-3, 3});
  CHECK(combined<std::uint32_t>({.type = Type::uint32, .op = Op::avg, .divisor = 2}, {{0xfffffff0u}, {4}}, true) ==
        std::vector<std::uint32_t>{0x7ffffffau});
  CHECK(combined<std::uint64_t>({.type = Type::uint64, .op = Op::avg, .divisor = 3}, {{~std::uint64_t{0}}}, true) ==
        std::vector<std::uint64_t>{0x5555555555555555u});
  CHECK(combined<std::int8_t>({.type = Type::int8, .op = Op::avg, .divisor = 300}, {{100}, {27}}, true) ==
        std::vector<std::int8_t>{0});
  CHECK(combined<std::int64_t>({.type = Type::int64, .op = Op::max}, {{-1}, {1}}) == std::vector<std::int64_t>{1});
  CHECK(combined<std::uint8_t>({.type = Type::uint8, .op = Op::max}, {{0xff}, {1}}) == std::vector<std::uint8_t>{0xff});
  CHECK(combined<std::uint64_t>({.type = Type::uint64, .op = Op::min}, {{~std::uint64_t{0}}, {1}}) ==
        std::vector<std::uint64_t>{1});
}

TEST_CASE("maximum and minimum are NaN when any source is") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Op op : {Op::max, Op::min}) {
    const auto out = combined<float>({.type = Type::float32, .op = op}, {{nan, 1, 1}, {1, nan, 2}, {2, 2, nan}});
    for (const float x : out) CHECK(std::isnan(x));
  }
}

TEST_CASE("a scaled last source is multiplied before it is added") {
  CHECK(combined<float>({.type = Type::float32, .op = Op::avg, .scale = 0.25}, {{10}, {8}}, true) ==
        std::vector<float>{12});
  CHECK(combined<double>({.type = Type::float64, .op = Op::avg, .scale = 0.5}, {{7}}, true) ==
        std::vector<double>{3.5});
}

TEST_CASE("host memory is zero, aligned to huge pages when it is large, and given back") {
  const auto device = make_host_device();
  CHECK(std::string(device->name()) == "host");
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{4096}, std::int64_t{5} << 20}) {
    auto* const memory = static_cast<unsigned char*>(device->allocate(Bytes(bytes)));
    REQUIRE(memory != nullptr);
    if (bytes >= 2 << 20) CHECK(reinterpret_cast<std::uintptr_t>(memory) % (2 << 20) == 0);
    for (std::int64_t i = 0; i < bytes; i += 4096) CHECK(memory[i] == 0);
    if (bytes != 0) memory[bytes - 1] = 1;
    device->release(memory, Bytes(bytes));
  }
  CHECK_THROWS_WITH(device->allocate(Bytes(std::int64_t{1} << 60)), Catch::Contains("allocating"));
}

TEST_CASE("the kernels have a name") {
  CHECK(std::string(host_kernels()) == tables().front()->name);
  CHECK(std::string(tables().back()->name) == "baseline");
}
