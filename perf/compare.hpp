// Several schedules in turn on the same data, A B A B …, each round together with a measurement of the bound, so that
// a slow moment of the machine meets all of them. What is compared are medians.
#pragma once

#include <string>
#include <vector>

#include "perf/bound.hpp"
#include "perf/measure.hpp"
#include "perf/options.hpp"
#include "perf/table.hpp"

namespace perf {

constexpr int kBatches = 5;

double median(std::vector<double> values);

// Times, checks and prints one size for every named schedule. bench is loaded. All crews at once.
void compare(const Options& options, Bench& bench, Bound& bound, Table& table, const Shape& shape,
             const NamedType& type, const NamedOp& op);

}  // namespace perf
