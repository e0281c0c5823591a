// THE list of schedules. A new one is a file of its own and one line here.
#include "src/base/error.hpp"
#include "src/schedules/schedules.hpp"

namespace hoccl {

std::span<const Schedule> all_schedules() {
  static const Schedule list[] = {kDirect, kHoRing, kRing, kTwoLevel};
  return list;
}

const Schedule* find_schedule(std::string_view name) {
  for (const Schedule& schedule : all_schedules())
    if (schedule.name == name) return &schedule;
  return nullptr;
}

std::string refuse_unequal(const Groups& groups) {
  return groups.equal() ? "" : fmt::format("{}: rails need as many ranks on every node", groups.describe());
}

Plan whole_plan(const Schedule& schedule, const Groups& groups, const Collective& collective, int parts) {
  const std::string why = schedule.refusal(groups, collective);
  require(why.empty(), Code::invalid_usage, "schedule {} refuses {}: {}", schedule.name, name_of(collective.kind), why);
  require(parts >= 1 && parts <= kMaxParts, Code::invalid_usage, "{} parts: must be 1 to {}", parts, kMaxParts);
  Plan plan{std::string(schedule.name), collective, parts, {}};
  for (int r = 0; r < groups.ranks(); ++r)
    plan.programs.push_back(schedule.program(groups, collective, parts, static_cast<Rank>(r)));
  return plan;
}

}  // namespace hoccl
