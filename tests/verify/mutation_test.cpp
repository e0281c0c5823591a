// The proofs must bite: plans damaged on purpose are reported.
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include "src/schedules/schedules.hpp"
#include "src/verify/verify.hpp"

using namespace hoccl;

namespace {

bool found(const Plan& plan) {
  return !verify(plan, {.in_place = false}).proved() || !verify(plan, {.in_place = true}).proved();
}

struct Spot {
  std::size_t rank, lane, step;
};

std::vector<Spot> spots(const Plan& plan) {
  std::vector<Spot> all;
  for (std::size_t r = 0; r < plan.programs.size(); ++r)
    for (std::size_t l = 0; l < plan.programs[r].lanes.size(); ++l)
      for (std::size_t s = 0; s < plan.programs[r].lanes[l].steps.size(); ++s) all.push_back({r, l, s});
  return all;
}

std::vector<Step>& steps_at(Plan& plan, Spot spot) { return plan.programs[spot.rank].lanes[spot.lane].steps; }

std::vector<Plan> victims() {
  std::vector<Plan> plans;
  for (const Schedule& schedule : all_schedules())
    for (const Kind kind : kKinds)
      for (const auto& [nodes, per_node] : {std::pair{2, 2}, {3, 2}, {2, 3}, {1, 4}})
        plans.push_back(whole_plan(schedule, Groups::even(nodes, per_node), {kind, nodes * per_node}, 2));
  return plans;
}

}  // namespace

TEST_CASE("a step that reads or writes a wrong block is always found") {
  for (const Plan& plan : victims())
    for (const Spot spot : spots(plan)) {
      const Step& original = plan.programs[spot.rank].lanes[spot.lane].steps[spot.step];
      Plan damaged = plan;
      Step& step = steps_at(damaged, spot)[spot.step];
      const auto blocks = static_cast<std::uint32_t>(plan.collective.ranks * plan.parts);
      if (original.into() && out_blocks(plan.collective, plan.parts) == blocks)
        step.into_block = (step.into_block + 1) % blocks;
      else if (original.with_space == Space::in && in_blocks(plan.collective, plan.parts) == blocks)
        step.with_block = (step.with_block + 1) % blocks;
      else
        continue;
      INFO(plan.schedule << " " << name_of(plan.collective.kind) << ": "
                         << to_text(plan.programs[spot.rank], original));
      REQUIRE(found(damaged));
    }
}

TEST_CASE("a missing step is always found") {
  for (const Plan& plan : victims())
    for (const Spot spot : spots(plan)) {
      Plan damaged = plan;
      auto& steps = steps_at(damaged, spot);
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(spot.step));
      INFO(plan.schedule << " " << name_of(plan.collective.kind) << ": step " << spot.step << " of rank " << spot.rank);
      // In place, the copy of a block onto itself changes nothing; out of place its absence is seen.
      REQUIRE(found(damaged));
    }
}

TEST_CASE("a doubled step that moves a message is always found") {
  for (const Plan& plan : victims())
    for (const Spot spot : spots(plan)) {
      Plan damaged = plan;
      auto& steps = steps_at(damaged, spot);
      const Step twice = steps[spot.step];
      if (twice.takes == 0 && twice.gives == 0) continue;
      steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(spot.step), twice);
      INFO(plan.schedule << " " << name_of(plan.collective.kind) << ": step " << spot.step << " of rank " << spot.rank);
      REQUIRE(found(damaged));
    }
}

TEST_CASE("a dropped wait of the gather lane is always found, if only by the order of accesses") {
  int dropped = 0, by_order_alone = 0;
  for (const Plan& plan : victims())
    for (const Spot spot : spots(plan)) {
      if (plan.programs[spot.rank].lanes[spot.lane].steps[spot.step].after_steps == 0) continue;
      Plan damaged = plan;
      steps_at(damaged, spot)[spot.step].after_steps = 0;
      const Report report = verify(damaged, {});
      REQUIRE_FALSE(report.proved());
      ++dropped;
      bool values = false;
      for (const Finding& f : report.findings) values |= f.check != "order";
      by_order_alone += !values;
    }
  CHECK(dropped > 50);
  // The check of values alone would have passed these: the two checks are one.
  CHECK(by_order_alone > 0);
}

TEST_CASE("a contribution that is combined twice or left out is found by values") {
  Plan plan = whole_plan(kRing, Groups::even(1, 4), {Kind::all_reduce, 4}, 1);
  Step& step = plan.programs[2].lanes[0].steps[1];
  REQUIRE(step.combine);
  step.combine = false;
  step.with_space = Space::none;
  const Report report = verify(plan, {});
  REQUIRE_FALSE(report.proved());
  CHECK(report.findings.front().check == "values");
}

TEST_CASE("shapes that make no sense are reported as such") {
  const Plan good = whole_plan(kRing, Groups::even(1, 3), {Kind::all_reduce, 3}, 1);
  const auto shape_text = [](const Plan& plan) {
    const Report report = verify(plan, {});
    REQUIRE_FALSE(report.proved());
    CHECK(report.findings.front().check == "shape");
    return report.findings.front().text;
  };
  Plan plan = good;
  plan.programs[0].gives[0].credits = 3;
  CHECK(shape_text(plan) == "channel ring from rank 0 to rank 1 differs on its two ends");
  plan = good;
  plan.programs[1].takes.clear();
  plan.programs[1].lanes[0].steps.clear();
  CHECK(shape_text(plan) == "channel ring from rank 0 to rank 1 has no taker");
  plan = good;
  plan.programs[1].lanes[0].steps[0].into_space = Space::in;
  CHECK(shape_text(plan).find("writes the input") != std::string::npos);
  plan = good;
  plan.programs[1].lanes[0].steps[0].with_block = 99;
  CHECK(shape_text(plan).find("names a block that is not there") != std::string::npos);
  plan = good;
  plan.programs.pop_back();
  CHECK(shape_text(plan) == "2 programs for 3 ranks");
}

TEST_CASE("the order in which lanes are tried does not change the result: swapped lanes are proved alike") {
  for (Plan plan : victims()) {
    for (Program& program : plan.programs) {
      const std::size_t n = program.lanes.size();
      for (std::size_t i = 0; i < n / 2; ++i) std::swap(program.lanes[i], program.lanes[n - 1 - i]);
      for (Lane& lane : program.lanes)
        for (Step& step : lane.steps)
          if (step.after_steps != 0) step.after_lane = static_cast<std::uint8_t>(n - 1 - step.after_lane);
    }
    REQUIRE(verify(plan, {}).describe().starts_with("proved"));
  }
}
