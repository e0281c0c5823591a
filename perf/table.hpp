// What the perf programs print: nccl-tests' comment lines and thirteen columns, so that what reads those reads these.
// With --schedule a fourteenth column names the schedule. All of it on standard output, by rank 0 alone.
#pragma once

#include <map>
#include <string>

#include "perf/crew.hpp"
#include "perf/measure.hpp"
#include "perf/options.hpp"

namespace perf {

// One half of a row: out of place, or in place.
struct Half {
  double time = 0;      // microseconds
  long long wrong = 0;  // elements; not printed without checks
};

class Table {
 public:
  Table(const Options& options, bool prints) : options_(options), prints_(prints) {}

  // Tells everybody who runs where; all crews at once.
  void header(const Crew& crew) const;
  void row(const Shape& shape, const NamedType& type, const NamedOp& op, const Half& out, const Half& in,
           const std::string& schedule);
  // A line that starts with '#'.
  void note(const std::string& text) const;
  // On standard error, when that is a terminal and the run is long.
  void progress(const std::string& text);
  void trailer() const;
  long long wrong() const { return wrong_; }

 private:
  void clear_progress();

  const Options& options_;
  bool prints_;
  bool showing_ = false;
  long long wrong_ = 0;
  struct Average {
    double sum = 0;
    int count = 0;
  };
  std::map<std::string, Average> averages_;  // bus bandwidth by schedule, of all rows under ""
};

}  // namespace perf
