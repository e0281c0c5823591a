// Groups from host identities: numbering, rails and the order of the flat ring.
#include "topology/groups.hpp"

#include <catch2/catch.hpp>

using namespace hoccl;

namespace {
Groups of(std::vector<std::string> hosts) { return Groups(hosts); }
}  // namespace

TEST_CASE("even groups put consecutive ranks on one node") {
  const Groups g = Groups::even(3, 2);
  CHECK(g.nodes() == 3);
  CHECK(g.ranks() == 6);
  CHECK(g.equal());
  CHECK(g.per_node() == 2);
  CHECK(g.node_of(Rank{3}) == 1);
  CHECK(g.local_of(Rank{3}) == 1);
  CHECK(g.members(2) == std::vector<Rank>{Rank{4}, Rank{5}});
  CHECK(g.describe() == "3 nodes x 2 ranks");
}

TEST_CASE("nodes are numbered by their lowest rank, whatever their names") {
  const Groups g = of({"z", "a", "z", "a"});
  CHECK(g.node_of(Rank{0}) == 0);
  CHECK(g.node_of(Rank{1}) == 1);
  CHECK(g.members(0) == std::vector<Rank>{Rank{0}, Rank{2}});
  CHECK(g.local_of(Rank{2}) == 1);
}

TEST_CASE("the flat ring visits each node once") {
  const Groups g = of({"z", "a", "z", "a", "b"});
  CHECK(g.node_order() == std::vector<Rank>{Rank{0}, Rank{2}, Rank{1}, Rank{3}, Rank{4}});
  for (int place = 0; place < 5; ++place)
    CHECK(g.place_in_order(g.node_order()[static_cast<std::size_t>(place)]) == place);
}

TEST_CASE("unequal nodes are told apart and described") {
  const Groups g = of({"a", "a", "b"});
  CHECK_FALSE(g.equal());
  CHECK(g.describe() == "2 nodes of 2, 1 ranks");
}

TEST_CASE("one rank is one node of one rank") {
  const Groups g = of({"a"});
  CHECK(g.equal());
  CHECK(g.describe() == "1 node x 1 rank");
}
