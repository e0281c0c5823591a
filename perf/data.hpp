// What goes in and what must come out. Inputs repeat after a prime number of elements, so that a pattern of that
// length describes a buffer of any size and a block in the wrong place still shows. Values are chosen so that the
// result is exact in the type, in any order of summation, wherever that is possible; else there is a bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "perf/options.hpp"

namespace perf {

using Pattern = std::vector<std::byte>;

constexpr std::size_t kPeriod = 8191;  // elements; prime, so no power of two is a multiple

class Data {
 public:
  Data(NamedType type, NamedOp op, int world);

  // Rank's input, element i of the buffer at i % kPeriod.
  Pattern input(int rank) const;
  // The reduction of all inputs.
  const Pattern& reduced() const { return reduced_; }
  // 0: results must have the very bits. Else how far a result may be away, as a multiple of the right value.
  double relative_bound() const { return relative_; }

  // Writes `count` elements of a buffer whose first is element `first` of the pattern.
  void fill(void* buffer, std::size_t count, const Pattern& pattern, std::size_t first) const;
  // Elements that differ: by more than the bound when `reduced`, else by their bits.
  long long wrong(const void* buffer, std::size_t count, const Pattern& pattern, std::size_t first, bool reduced) const;

 private:
  NamedType type_;
  NamedOp op_;
  int world_;
  double relative_ = 0, absolute_ = 0;
  Pattern reduced_;

  double value(int rank, std::size_t i) const;
  std::uint64_t integer(int rank, std::size_t i) const;
  void reduce_floats();
  void reduce_integers();
};

}  // namespace perf
