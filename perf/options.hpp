// The command line of the perf programs: the names and meanings of nccl-tests, and a few options of HOCCL's own.
// Also where the ranks of this process stand among all processes, from the launcher's environment.
#pragma once

#include <string>
#include <vector>

#include "nccl.h"

namespace perf {

enum class Collective { all_reduce, all_gather, reduce_scatter };

struct NamedType {
  ncclDataType_t type;
  const char* name;
  int bytes;
};
struct NamedOp {
  ncclRedOp_t op;
  const char* name;
};

struct Options {
  Collective collective = Collective::all_reduce;
  std::string collective_name;  // "all_reduce"
  long long min_bytes = 32 << 20, max_bytes = 32 << 20, step_bytes = 1 << 20;
  long long step_factor = 1;  // above 1: sizes are multiplied, step_bytes is not used
  int iterations = 20, warmup = 1, checks = 1;
  int aggregate = 1;  // operations launched as one group by each timed iteration
  int threads = 1, ranks_per_thread = 1;
  std::vector<NamedType> types;
  std::vector<NamedOp> ops;
  std::vector<std::string> schedules;  // empty: one communicator, the library chooses
  bool counters = false;
  int process = 0, processes = 1;

  int world() const { return processes * threads * ranks_per_thread; }
};

// Fills the options. Returns -1 to go on, else the program's exit status after having printed help or an error.
int parse(int argc, char** argv, const char* collective, Options& options);

}  // namespace perf
