// Values to bytes and back, for what ranks tell each other at start (never on the data path). Both ends run the
// same build on the same kind of machine: numbers travel as they lie in memory, and start-up compares versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "src/base/error.hpp"

namespace hoccl {

using Blob = std::vector<std::byte>;

class Writer {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T> Writer& put(const T& value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    blob_.insert(blob_.end(), from, from + sizeof(T));
    return *this;
  }
  Writer& put_bytes(std::span<const std::byte> bytes) {
    put(static_cast<std::uint32_t>(bytes.size()));
    blob_.insert(blob_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Writer& put_text(std::string_view text) { return put_bytes(std::as_bytes(std::span(text.data(), text.size()))); }
  Blob take() { return std::move(blob_); }

 private:
  Blob blob_;
};

// Reads what a Writer wrote; throws Error{remote} when the bytes end too early.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value;
    const auto from = cut(sizeof(T));
    std::memcpy(&value, from.data(), sizeof(T));
    return value;
  }
  Blob get_bytes() {
    const auto from = cut(get<std::uint32_t>());
    return Blob(from.begin(), from.end());
  }
  std::string get_text() {
    const auto from = cut(get<std::uint32_t>());
    return std::string(reinterpret_cast<const char*>(from.data()), from.size());
  }
  bool done() const { return rest_.empty(); }

 private:
  std::span<const std::byte> cut(std::size_t n) {
    require(n <= rest_.size(), Code::remote, "a message from another rank ends {} bytes too early", n - rest_.size());
    const auto head = rest_.first(n);
    rest_ = rest_.subspan(n);
    return head;
  }
  std::span<const std::byte> rest_;
};

// FNV-1a, 64 bits: for comparing configurations and requests, not against malice.
constexpr std::uint64_t kHashSeed = 0xcbf29ce484222325ULL;
inline std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed = kHashSeed) {
  for (const std::byte b : bytes) seed = (seed ^ static_cast<std::uint64_t>(b)) * 0x100000001b3ULL;
  return seed;
}
inline std::uint64_t hash_text(std::string_view text, std::uint64_t seed = kHashSeed) {
  return hash_bytes(std::as_bytes(std::span(text.data(), text.size())), seed);
}

}  // namespace hoccl
