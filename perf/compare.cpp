// See compare.hpp.
#include "perf/compare.hpp"

#include <algorithm>
#include <cstdio>

namespace perf {
namespace {

struct Samples {
  std::vector<double> out, in;  // microseconds, one for each batch
};

// A share of the bound; above 1 the bound did not hold, so it is no result.
std::string share(double least_time, double time) {
  if (least_time <= 0 || time <= 0) return "-";
  const double ratio = least_time / time;
  if (ratio > 1) return ">1: cached or unshaped";
  char text[16];
  std::snprintf(text, sizeof text, "%.3f", ratio);
  return text;
}

// "10089.83 us (9811.20 to 11020.55), bound/time 0.112"
std::string spread(const std::vector<double>& times, double least_time) {
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  char text[128];
  std::snprintf(text, sizeof text, "%.2f us (%.2f to %.2f), bound/time ", median(times), *least, *most);
  return text + share(least_time, median(times));
}

void summary(const Options& o, const Bound& bound, const Table& table, const Shape& shape,
             const std::vector<Samples>& samples, double rate) {
  const double least = bound.least_time(o.collective, shape.size, rate);
  char line[128];
  std::snprintf(line, sizeof line, "bound: %.2f us by ", least);
  table.note(line + bound.text(rate));
  const double first_out = median(samples[0].out), first_in = median(samples[0].in);
  for (std::size_t s = 0; s < samples.size(); ++s) {
    std::snprintf(line, sizeof line, "%-10s", o.schedules[s].c_str());
    table.note(line + std::string(" out-of-place ") + spread(samples[s].out, least) + "; in-place " +
               spread(samples[s].in, least));
  }
  for (std::size_t s = 1; s < samples.size(); ++s) {
    const double out = median(samples[s].out), in = median(samples[s].in);
    if (out <= 0 || in <= 0) continue;
    std::snprintf(line, sizeof line, "%s/%s out-of-place %.2f, in-place %.2f (times as fast)", o.schedules[0].c_str(),
                  o.schedules[s].c_str(), first_out / out, first_in / in);
    table.note(line);
  }
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void compare(const Options& o, Bench& bench, Bound& bound, Table& table, const Shape& shape, const NamedType& type,
             const NamedOp& op) {
  const int schedules = static_cast<int>(o.schedules.size());
  const int iterations = std::max(1, (o.iterations + kBatches - 1) / kBatches);
  std::vector<Samples> samples(o.schedules.size());
  std::vector<double> rates;
  for (int s = 0; s < schedules && o.warmup > 0; ++s) bench.timed(s, false, o.warmup);
  for (int batch = 0; batch < kBatches; ++batch) {
    for (int s = 0; s < schedules; ++s)
      samples[static_cast<std::size_t>(s)].out.push_back(bench.timed(s, false, iterations));
    for (int s = 0; s < schedules; ++s)
      samples[static_cast<std::size_t>(s)].in.push_back(bench.timed(s, true, iterations));
    rates.push_back(bound.rate(bound.node_bytes(o.collective, shape.size)));
  }
  for (int s = 0; s < schedules; ++s) {
    const Samples& mine = samples[static_cast<std::size_t>(s)];
    const Half out{median(mine.out), bench.checked(s, false)};
    const Half in{median(mine.in), bench.checked(s, true)};
    table.row(shape, type, op, out, in, o.schedules[static_cast<std::size_t>(s)]);
  }
  summary(o, bound, table, shape, samples, median(rates));
}

}  // namespace perf
