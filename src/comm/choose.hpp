// Which schedule a request runs, in how many parts. Same inputs, same answer, on every rank: the groups, the request
// and the agreed knobs are equal everywhere.
#pragma once

#include <string>

#include "src/base/config.hpp"
#include "src/comm/request.hpp"
#include "src/schedules/schedule.hpp"

namespace hoccl {

struct Choice {
  const Schedule* schedule = nullptr;
  int parts = 1;
};

// Throws Error{invalid_usage} when the knob HOCCL_SCHEDULE leaves nothing that serves the request.
Choice choose(const Groups& groups, const NameFilter& allowed, const Request& request);

// Throws Error{invalid_argument} when the filter names a schedule that does not exist.
void check_schedule_names(const NameFilter& allowed);

}  // namespace hoccl
