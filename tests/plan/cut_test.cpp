// Blocks to element ranges: every element belongs to exactly one block of one round.
#include "src/plan/cut.hpp"

#include <vector>

#include <catch2/catch.hpp>

using namespace hoccl;

TEST_CASE("the blocks of all rounds cover each element exactly once") {
  const Type type = GENERATE(Type::int8, Type::float16, Type::float32, Type::float64);
  const int ranks = GENERATE(1, 2, 3, 7, 8);
  const int parts = GENERATE(1, 2, 4);
  const std::int64_t count = GENERATE(0, 1, 3, 17, 63, 64, 65, 1000, 65537);
  const Bytes slot(1024);

  const Count outer = outer_stride(Count(count), ranks, type);
  const Cutting cutting = cut_outer(outer, parts, type, slot);
  const Cut cut(Count(count), outer, cutting.piece, parts);
  std::vector<int> covered(static_cast<std::size_t>(count), 0);
  for (int round = 0; round < cutting.rounds; ++round)
    for (int block = 0; block < ranks * parts; ++block) {
      const Span s = cut.span(static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(round));
      REQUIRE(bytes_of(s.count, type) <= slot);
      REQUIRE(s.count >= Count(0));
      for (std::int64_t i = 0; i < s.count.value; ++i) ++covered[static_cast<std::size_t>(s.first.value + i)];
    }
  for (const int times : covered) REQUIRE(times == 1);
}

TEST_CASE("large blocks begin on cache lines") {
  const Count outer = outer_stride(Count(65537), 8, Type::float32);
  CHECK(outer.value % 16 == 0);
  const Cutting cutting = cut_outer(outer, 4, Type::float32, Bytes(4096));
  CHECK(cutting.piece.value % 16 == 0);
}

TEST_CASE("small counts are spread over the ranks one by one") {
  CHECK(outer_stride(Count(8), 8, Type::float32) == Count(1));
  CHECK(outer_stride(Count(9), 8, Type::float32) == Count(2));
  CHECK(outer_stride(Count(0), 8, Type::float32) == Count(0));
}

TEST_CASE("an outer block that fits its parts takes one round") {
  CHECK(cut_outer(Count(1024), 4, Type::float32, Bytes(1024)).rounds == 1);
  CHECK(cut_outer(Count(1025), 4, Type::float32, Bytes(1024)).rounds == 2);
  CHECK(cut_outer(Count(0), 4, Type::float32, Bytes(1024)).rounds == 1);
}
