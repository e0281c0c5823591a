// The perf programs' main: makes the threads, each of them the communicators of its ranks, and goes through types,
// operations and sizes. Every thread of every process goes the same way; rank 0's prints.
// Read next: measure.hpp (one row), compare.hpp (several schedules), data.hpp (what is checked).
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "perf/bound.hpp"
#include "perf/compare.hpp"
#include "perf/crew.hpp"
#include "perf/measure.hpp"
#include "perf/options.hpp"
#include "perf/table.hpp"

namespace perf {
namespace {

// What the threads of this process share.
struct Process {
  const Options& options;
  std::barrier<> gate;
  ncclUniqueId id{};    // of the communicator being made; written by thread 0 between two gates
  long long wrong = 0;  // written by thread 0 at the end
};

// One communicator for each schedule, or one. The environment is changed and read between gates.
void join_all(Process& process, int thread, Crew& crew) {
  const std::vector<std::string>& names = process.options.schedules;
  for (std::size_t s = 0; s < std::max<std::size_t>(names.size(), 1); ++s) {
    process.gate.arrive_and_wait();
    if (thread == 0) {
      if (!names.empty()) setenv("HOCCL_SCHEDULE", names[s].c_str(), 1);
      must(ncclGetUniqueId(&process.id), "ncclGetUniqueId");
    }
    process.gate.arrive_and_wait();
    crew.join(process.id);
  }
}

std::vector<long long> sizes(const Options& o) {
  std::vector<long long> all;
  for (long long size = o.min_bytes; size <= o.max_bytes;) {
    all.push_back(size);
    if (o.step_factor > 1 && size == 0) size = 1;  // a factor cannot leave 0
    size = o.step_factor > 1 ? (size > o.max_bytes / o.step_factor ? o.max_bytes + 1 : size * o.step_factor)
                             : size + o.step_bytes;
  }
  return all;
}

// What the library would run, for the counters' heading and the streams of the bound.
struct Choice {
  std::string name;
  int parts = 1, streams = 1;
};
Choice choice(const Options& o, const Crew& crew, int schedule, const Shape& shape, const NamedType& type) {
  char name[64] = "";
  Choice c;
  must(hocclCommChoice(crew.comm(schedule, 0), o.collective_name.c_str(), shape.count, type.type, name, sizeof name,
                       &c.parts, &c.streams),
       "hocclCommChoice");
  c.name = name;
  return c;
}

class Run {
 public:
  Run(const Options& options, Crew& crew)
      : o_(options), crew_(crew), bench_(options, crew), table_(options, crew.prints()) {}

  void all() {
    table_.header(crew_);
    if (!o_.schedules.empty()) prepare_bound();
    for (const NamedType& type : o_.types)
      for (const NamedOp& op : o_.ops) {
        bench_.load(type, op);
        if (o_.checks != 0 && bench_.relative_bound() != 0) note_bound(type, op);
        for (const long long size : sizes(o_)) row(size, type, op);
      }
    table_.trailer();
  }
  long long wrong() const { return table_.wrong(); }

 private:
  void note_bound(const NamedType& type, const NamedOp& op) {
    char line[128];
    std::snprintf(line, sizeof line, "%s %s: checked within %.2g of the value, because 1/%d is not exact", type.name,
                  op.name, bench_.relative_bound(), o_.world());
    table_.note(line);
  }

  void note_cut(long long size, const NamedType& type) {
    const std::string cut = "size " + std::to_string(size) + " is cut to 0: ";
    if (o_.collective == Collective::all_reduce)
      table_.note(cut + "an element of " + type.name + " has " + std::to_string(type.bytes) + " bytes");
    else
      table_.note(cut + "each of " + std::to_string(o_.world()) + " ranks has a multiple of 16 bytes of it, so -b " +
                  std::to_string(16 * o_.world()) + " is the least");
  }

  void prepare_bound() {
    int streams = 1;
    for (std::size_t s = 0; s < o_.schedules.size(); ++s)
      streams = std::max(
          streams,
          choice(o_, crew_, static_cast<int>(s), bench_.shape(o_.max_bytes, o_.types[0]), o_.types[0]).streams);
    bound_ = std::make_unique<Bound>(crew_, streams);
  }

  void row(long long size, const NamedType& type, const NamedOp& op) {
    const Shape shape = bench_.shape(size, type);
    table_.progress(o_.collective_name + ": " + std::to_string(shape.size) + " bytes " + type.name + " " + op.name);
    if (size > 0 && shape.size == 0) note_cut(size, type);
    bench_.load(shape);
    if (bound_ != nullptr)
      compare(o_, bench_, *bound_, table_, shape, type, op);
    else
      single(shape, type, op);
    if (!o_.counters) return;
    const int made = std::max<int>(static_cast<int>(o_.schedules.size()), 1);
    for (int s = 0; s < made; ++s) {
      const Choice c = choice(o_, crew_, s, shape, type);
      bench_.counted(s, c.name, c.parts);
    }
  }

  void single(const Shape& shape, const NamedType& type, const NamedOp& op) {
    Half halves[2];
    for (const bool in_place : {false, true}) {
      Half& half = halves[in_place ? 1 : 0];
      if (o_.warmup > 0) bench_.timed(0, in_place, o_.warmup);
      half.time = bench_.timed(0, in_place, o_.iterations);
      half.wrong = bench_.checked(0, in_place);
    }
    table_.row(shape, type, op, halves[0], halves[1], "");
  }

  const Options& o_;
  Crew& crew_;
  Bench bench_;
  Table table_;
  std::unique_ptr<Bound> bound_;
};

void run_thread(Process& process, int thread) {
  const Options& o = process.options;
  Crew crew((o.process * o.threads + thread) * o.ranks_per_thread, o.ranks_per_thread, o.world());
  join_all(process, thread, crew);
  Run run(o, crew);
  run.all();
  if (thread == 0) process.wrong = run.wrong();
  crew.meet();  // nobody leaves while another still needs it
}

}  // namespace
}  // namespace perf

int main(int argc, char** argv) {
  perf::Options options;
  const int status = perf::parse(argc, argv, HOCCL_PERF_COLLECTIVE, options);
  if (status >= 0) return status;
  perf::Process process{.options = options, .gate = std::barrier<>(options.threads)};
  std::vector<std::thread> threads;
  for (int t = 1; t < options.threads; ++t) threads.emplace_back(perf::run_thread, std::ref(process), t);
  perf::run_thread(process, 0);
  for (std::thread& thread : threads) thread.join();
  return process.wrong == 0 ? 0 : 1;
}
