#include "src/comm/choose.hpp"

#include <algorithm>

#include "src/base/error.hpp"
#include "src/plan/cut.hpp"

namespace hoccl {
namespace {

// Below this a message costs more by its number than by its length, so a block is not cut further.
constexpr std::int64_t kLeastPart = 32 * 1024;
constexpr int kMostParts = 4;

std::string names() {
  std::string list;
  for (const Schedule& s : all_schedules()) list += fmt::format("{}{}", list.empty() ? "" : ", ", s.name);
  return list;
}

// Every rank of a node exchanges with every other while the links, whose number grows with the square, stay few.
constexpr int kMostDirect = 16;

// Fewest bytes between nodes and fewest steps over the network first; inside one node the fewest steps.
int preference(const Schedule& schedule, const Groups& groups) {
  const bool one_node = groups.nodes() == 1, two_levels = !one_node && groups.nodes() < groups.ranks();
  if (schedule.name == "ho_ring") return two_levels ? 0 : 3;
  if (schedule.name == "direct") return one_node && groups.ranks() <= kMostDirect ? 0 : 4;
  return schedule.name == "ring" ? 1 : 2;
}

}  // namespace

Count outer_count(const Request& request, int ranks) {
  return request.kind == Kind::all_reduce ? outer_stride(request.count, ranks, request.type) : request.count;
}

void check_schedule_names(const NameFilter& allowed) {
  for (const std::string& name : allowed.names)
    require(find_schedule(name) != nullptr, Code::invalid_argument,
            "HOCCL_SCHEDULE (or NCCL_ALGO) names the schedule {}, which does not exist; there are: {}", name, names());
  bool any = false;
  for (const Schedule& s : all_schedules()) any = any || allowed.accepts(s.name);
  require(any, Code::invalid_argument, "HOCCL_SCHEDULE (or NCCL_ALGO) leaves no schedule; there are: {}", names());
}

Choice choose(const Groups& groups, const NameFilter& allowed, const Request& request) {
  const Collective collective{request.kind, groups.ranks()};
  const Schedule* best = nullptr;
  std::string refusals;
  for (const Schedule& s : all_schedules()) {
    const std::string why = allowed.accepts(s.name) ? s.refusal(groups, collective) : "HOCCL_SCHEDULE leaves it out";
    if (!why.empty())
      refusals += fmt::format("; {}: {}", s.name, why);
    else if (best == nullptr || preference(s, groups) < preference(*best, groups))
      best = &s;
  }
  require(best != nullptr, Code::invalid_usage, "no schedule is left for {}{}", name_of(request.kind), refusals);
  const std::int64_t outer = bytes_of(outer_count(request, groups.ranks()), request.type).value;
  return {best, static_cast<int>(std::clamp<std::int64_t>(outer / kLeastPart, 1, kMostParts))};
}

}  // namespace hoccl
