// Every schedule on every small shape: proved by value and by order, with exactly the traffic that the paper states.
#include <vector>

#include <catch2/catch.hpp>

#include "src/base/error.hpp"
#include "src/schedules/schedules.hpp"
#include "src/verify/facts.hpp"
#include "src/verify/verify.hpp"

using namespace hoccl;

namespace {

std::vector<int> nodes_of(const Groups& groups) {
  std::vector<int> nodes;
  for (int r = 0; r < groups.ranks(); ++r) nodes.push_back(groups.node_of(static_cast<Rank>(r)));
  return nodes;
}

void prove(const Schedule& schedule, const Groups& groups, Kind kind, int parts) {
  const Plan plan = whole_plan(schedule, groups, {kind, groups.ranks()}, parts);
  for (const bool in_place : {false, true})
    for (const int more : {0, 3}) {
      const Report report = verify(plan, {.in_place = in_place, .more_credits = more});
      INFO(schedule.name << " " << name_of(kind) << " " << groups.describe() << ", parts " << parts << ", in place "
                         << in_place);
      REQUIRE(report.describe().starts_with("proved"));
    }
}

void prove_small_shapes(const Schedule& schedule) {
  for (const int parts : {1, 2, 4})
    for (const Kind kind : kKinds)
      for (int nodes = 1; nodes <= 6; ++nodes)
        for (int per_node = 1; per_node <= 6; ++per_node) prove(schedule, Groups::even(nodes, per_node), kind, parts);
}

}  // namespace

// One test case for each schedule: they run beside each other. That all of them are here is checked below.
TEST_CASE("direct is proved on all shapes up to 6 nodes x 6 ranks, in and out of place") {
  prove_small_shapes(kDirect);
}
TEST_CASE("ring is proved on all shapes up to 6 nodes x 6 ranks, in and out of place") { prove_small_shapes(kRing); }
TEST_CASE("two_level is proved on all shapes up to 6 nodes x 6 ranks, in and out of place") {
  prove_small_shapes(kTwoLevel);
}
TEST_CASE("ho_ring is proved on all shapes up to 6 nodes x 6 ranks, in and out of place") {
  prove_small_shapes(kHoRing);
}

TEST_CASE("no schedule is listed that this file does not prove") { CHECK(all_schedules().size() == 4); }

TEST_CASE("the flat ring is proved up to 33 ranks and on unequal nodes") {
  for (const Kind kind : kKinds) {
    for (int ranks = 1; ranks <= 33; ++ranks) prove(kRing, Groups::even(1, ranks), kind, 1);
    prove(kRing, Groups(std::vector<std::string>{"a", "b", "a", "c", "c", "a"}), kind, 2);
  }
}

TEST_CASE("ranks of a node need not be neighbours") {
  const Groups cyclic(std::vector<std::string>{"a", "b", "c", "a", "b", "c"});
  for (const Schedule& schedule : all_schedules())
    for (const Kind kind : kKinds) prove(schedule, cyclic, kind, 2);
}

TEST_CASE("HO-Ring and two levels refuse unequal nodes with the reason") {
  const Groups unequal(std::vector<std::string>{"a", "a", "b"});
  CHECK(kHoRing.refusal(unequal, {Kind::all_reduce, 3}) ==
        "2 nodes of 2, 1 ranks: rails need as many ranks on every node");
  CHECK(kTwoLevel.refusal(unequal, {Kind::all_reduce, 3}) == kHoRing.refusal(unequal, {Kind::all_reduce, 3}));
  CHECK_THROWS_AS(whole_plan(kHoRing, unequal, {Kind::all_reduce, 3}, 1), Error);
}

TEST_CASE("HO-Ring sends N-1 blocks per rail and N(M-1) inside the node per rank") {
  const int nodes = GENERATE(2, 3, 4, 6), per_node = GENERATE(1, 2, 4, 5), parts = GENERATE(1, 2);
  const Groups groups = Groups::even(nodes, per_node);
  const bool overlapped = GENERATE(true, false);
  for (const Kind kind : kKinds) {
    const int phases = kind == Kind::all_reduce ? 2 : 1;
    const Facts facts =
        facts_of(whole_plan(overlapped ? kHoRing : kTwoLevel, groups, {kind, groups.ranks()}, parts), nodes_of(groups));
    std::vector<std::int64_t> inside(static_cast<std::size_t>(groups.ranks()));
    for (const ChannelFact& c : facts.channels)
      if (c.label == Label::rail)
        CHECK(c.messages == phases * (nodes - 1) * parts);
      else
        inside[static_cast<std::size_t>(index(c.from))] += c.messages;
    for (const std::int64_t blocks : inside) CHECK(blocks == phases * nodes * (per_node - 1) * parts);
    for (const std::int64_t blocks : facts.leaving) CHECK(blocks == phases * per_node * (nodes - 1) * parts);
    CHECK(facts.leaving == facts.entering);
  }
}

TEST_CASE("the flat ring sends P-1 blocks over each link between nodes") {
  const int nodes = GENERATE(2, 3, 5), per_node = GENERATE(1, 3, 4);
  const Groups groups = Groups::even(nodes, per_node);
  for (const Kind kind : kKinds) {
    const int phases = kind == Kind::all_reduce ? 2 : 1;
    const Facts facts = facts_of(whole_plan(kRing, groups, {kind, groups.ranks()}, 1), nodes_of(groups));
    for (const std::int64_t blocks : facts.leaving) CHECK(blocks == phases * (groups.ranks() - 1));
  }
}

TEST_CASE("with one credit fewer than stated, rings of three and more get stuck and the report says where") {
  for (const Schedule& schedule : {kRing, kTwoLevel, kHoRing}) {
    const Plan plan = whole_plan(schedule, Groups::even(3, 3), {Kind::all_gather, 9}, 2);
    const Report report = verify(plan, {.more_credits = -1});
    REQUIRE_FALSE(report.proved());
    CHECK(report.findings.front().check == "progress");
    CHECK(report.findings.front().text.starts_with("stuck at rank 0"));
  }
}

TEST_CASE("a rank's program does not depend on whether the others are built") {
  const Groups groups = Groups::even(2, 3);
  for (const Schedule& schedule : all_schedules()) {
    const Plan plan = whole_plan(schedule, groups, {Kind::all_reduce, 6}, 2);
    CHECK(plan.programs[4] == schedule.program(groups, {Kind::all_reduce, 6}, 2, Rank{4}));
  }
}

TEST_CASE("a rank of 100,000 holds 212,499 steps of 24 bytes") {
  const Groups groups = Groups::even(12500, 8);
  const Program program = kHoRing.program(groups, {Kind::all_reduce, groups.ranks()}, 1, Rank{4711});
  std::size_t steps = 0;
  for (const Lane& lane : program.lanes) steps += lane.steps.size();
  // 12,500 x 7 reduce, 12,500 + 12,499 rail, 12,500 x 8 gather
  CHECK(steps == 87500 + 24999 + 100000);
}
