// What a schedule is: a pure function from (groups, collective, parts, rank) to that rank's program. THE list of
// schedules is src/schedules/all.cpp. A schedule knows no transport, no size and no type.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "src/plan/plan.hpp"
#include "topology/groups.hpp"

namespace hoccl {

struct Schedule {
  std::string_view name;
  std::string_view summary;
  // Empty when the schedule serves this collective over these groups; otherwise the reason why not.
  std::string (*refusal)(const Groups& groups, const Collective& collective);
  Program (*program)(const Groups& groups, const Collective& collective, int parts, Rank rank);
};

std::span<const Schedule> all_schedules();
const Schedule* find_schedule(std::string_view name);

// The programs of all ranks, for proofs and pictures. Throws Error{invalid_usage} with the refusal.
Plan whole_plan(const Schedule& schedule, const Groups& groups, const Collective& collective, int parts);

inline constexpr int kMaxParts = 8;

}  // namespace hoccl
