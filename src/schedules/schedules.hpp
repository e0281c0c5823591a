// The schedules by name; each is defined in the file of its name and listed in all.cpp.
#pragma once

#include "src/schedules/schedule.hpp"

namespace hoccl {

extern const Schedule kDirect;
extern const Schedule kRing;
extern const Schedule kTwoLevel;
extern const Schedule kHoRing;

// Why a schedule of rails does not serve these groups; empty when it does.
std::string refuse_unequal(const Groups& groups);

}  // namespace hoccl
