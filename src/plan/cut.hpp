// Which elements a block is. A plan names blocks; only here do sizes enter, so one plan serves all counts.
// A space consists of outer blocks (one per rank, or the rank's own alone), each of which is cut into rounds x parts
// pieces; block (outer o, part p) in round k is piece k*parts+p of outer block o. Pieces at the end may be empty.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/base/types.hpp"

namespace hoccl {

struct Span {
  Count first;
  Count count;
};

class Cut {
 public:
  Cut() = default;
  // `total` elements in outer blocks of `stride` (the last ones shorter or empty), each in rounds x parts pieces of
  // `piece` elements. Requires piece * rounds * parts >= stride.
  Cut(Count total, Count stride, Count piece, int parts)
      : total_(total), stride_(stride), piece_(piece), parts_(parts) {}

  Span span(std::uint32_t block, std::uint32_t round) const noexcept {
    const std::int64_t outer = block / static_cast<std::uint32_t>(parts_);
    const std::int64_t part = block % static_cast<std::uint32_t>(parts_);
    const std::int64_t start = std::min(outer * stride_.value, total_.value);
    const std::int64_t length = std::min(stride_.value, total_.value - start);
    const std::int64_t offset = std::min((static_cast<std::int64_t>(round) * parts_ + part) * piece_.value, length);
    return {Count(start + offset), Count(std::min(piece_.value, length - offset))};
  }

 private:
  Count total_{0}, stride_{0}, piece_{0};
  int parts_ = 1;
};

// The cut of one request: how long an outer block is, how many rounds, how many elements in a piece.
struct Cutting {
  Count stride{0};
  Count piece{0};
  int rounds = 1;
};

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// `count` elements over `ranks` outer blocks. Boundaries fall on multiples of 64 bytes where blocks are larger.
constexpr Count outer_stride(Count count, int ranks, Type type) {
  const std::int64_t even = divide_up(count.value, ranks);
  const std::int64_t line = 64 / row(type).bytes;
  return Count(even > line ? divide_up(even, line) * line : even);
}

// Cuts an outer block of `stride` elements into rounds x parts pieces that each fit `slot` bytes.
constexpr Cutting cut_outer(Count stride, int parts, Type type, Bytes slot) {
  const std::int64_t line = 64 / row(type).bytes;
  const std::int64_t fit = slot.value / row(type).bytes / line * line;
  const std::int64_t rounds = std::max<std::int64_t>(1, divide_up(stride.value, fit * parts));
  const std::int64_t even = divide_up(stride.value, rounds * parts);
  const std::int64_t piece = even > line ? divide_up(even, line) * line : even;
  return {stride, Count(piece), static_cast<int>(rounds)};
}

}  // namespace hoccl
