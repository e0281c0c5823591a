// See table.hpp.
#include "perf/table.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "perf/compare.hpp"

namespace perf {
namespace {

struct Member {
  char host[64];
  int pid, thread, node, local;
};

std::string in_microseconds(double time) {
  char text[32];
  std::snprintf(text, sizeof text, time >= 9999.5 ? "%.0f" : time >= 99.95 ? "%.1f" : "%.2f", time);
  return text;
}

}  // namespace

void Table::header(const Crew& crew) const {
  std::vector<Member> mine(static_cast<std::size_t>(crew.ranks()));
  for (int i = 0; i < crew.ranks(); ++i) {
    Member& m = mine[static_cast<std::size_t>(i)];
    gethostname(m.host, sizeof m.host - 1);
    const Place place = crew.place(i);
    m.pid = static_cast<int>(getpid());
    m.thread = crew.first_rank() / crew.ranks() % options_.threads;
    m.node = place.node;
    m.local = place.local;
  }
  const std::vector<Member> all = crew.gather(mine);
  if (!prints_) return;
  int version = 0;
  must(ncclGetVersion(&version), "ncclGetVersion");
  const Options& o = options_;
  std::printf("# %s_perf, HOCCL %s, NCCL %d.%d.%d interface\n", o.collective_name.c_str(), hocclVersion(),
              version / 10000, version / 100 % 100, version % 100);
  std::printf(
      "# nThread %d nGpus %d minBytes %lld maxBytes %lld step: %lld(%s) warmup iters: %d iters: %d agg iters: %d "
      "check: %d\n",
      o.threads, o.ranks_per_thread, o.min_bytes, o.max_bytes, o.step_factor > 1 ? o.step_factor : o.step_bytes,
      o.step_factor > 1 ? "factor" : "bytes", o.warmup, o.iterations, o.aggregate, o.checks);
  if (o.schedules.empty())
    std::printf("# time: of one operation, the mean, of the slowest rank\n");
  else
    std::printf(
        "# time: of one operation, of the slowest rank: median (least to most) of the means of %d batches\n"
        "# bound: what moving the bytes that must move takes here by plain %s; bound/time: 1 is as fast as that\n"
        "# A/B: time of A / time of B: so many times as fast as A is B\n",
        kBatches, crew.place(0).nodes > 1 ? "TCP streams" : "copies");
  std::printf("#\n# Using ranks\n");
  for (std::size_t r = 0; r < all.size(); ++r)
    std::printf("#  Rank %3zu Group  0 Pid %6d Thread %2d on %10s node %2d local %2d\n", r, all[r].pid, all[r].thread,
                all[r].host, all[r].node, all[r].local);
  std::printf("#\n#%73s%37s\n", "out-of-place", "in-place");
  std::printf("#%11s %13s %9s %7s %7s  %8s %7s %7s %6s  %8s %7s %7s %6s%s\n", "size", "count", "type", "redop", "root",
              "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong",
              o.schedules.empty() ? "" : "  schedule");
  std::printf("#%11s %13s %9s %7s %7s  %8s %7s %7s %6s  %8s %7s %7s %6s\n", "(B)", "(elements)", "", "", "", "(us)",
              "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
  std::fflush(stdout);
}

void Table::row(const Shape& shape, const NamedType& type, const NamedOp& op, const Half& out, const Half& in,
                const std::string& schedule) {
  wrong_ += out.wrong + in.wrong;
  clear_progress();
  if (prints_) std::printf("%12lld %13zu %9s %7s %7d", shape.size, shape.count, type.name, op.name, -1);
  for (const Half* half : {&out, &in}) {
    const double algorithm = half->time > 0 ? static_cast<double>(shape.size) / half->time / 1e3 : 0;  // GB/s
    for (const std::string& name : {std::string(), schedule}) {
      Average& average = averages_[name];
      average.sum += algorithm * shape.bus_factor;
      ++average.count;
      if (schedule.empty()) break;
    }
    if (prints_)
      std::printf("  %8s %7.2f %7.2f %6s", in_microseconds(half->time).c_str(), algorithm, algorithm * shape.bus_factor,
                  options_.checks == 0 ? "N/A" : std::to_string(half->wrong).c_str());
  }
  if (!prints_) return;
  std::printf("%s%s\n", schedule.empty() ? "" : "  ", schedule.c_str());
  std::fflush(stdout);
}

void Table::note(const std::string& text) const {
  if (!prints_) return;
  std::printf("# %s\n", text.c_str());
  std::fflush(stdout);
}

void Table::progress(const std::string& text) {
  static const auto begin = std::chrono::steady_clock::now();
  if (!prints_ || isatty(STDERR_FILENO) == 0) return;
  if (std::chrono::steady_clock::now() - begin < std::chrono::seconds(3)) return;
  std::fprintf(stderr, "\r%-78.78s", text.c_str());
  showing_ = true;
}

void Table::clear_progress() {
  if (showing_) std::fprintf(stderr, "\r%78s\r", "");
  showing_ = false;
}

void Table::trailer() const {
  if (!prints_) return;
  std::printf("# Out of bounds values : %lld %s\n", wrong_, wrong_ == 0 ? "OK" : "FAILED");
  const auto average = [&](const std::string& name) {
    const auto found = averages_.find(name);
    return found == averages_.end() ? 0.0 : found->second.sum / found->second.count;
  };
  for (const std::string& name : options_.schedules)
    std::printf("# Avg bus bandwidth of %-10s : %.6g\n", name.c_str(), average(name));
  std::printf("# Avg bus bandwidth    : %.6g%s\n#\n", average(""),
              options_.schedules.empty() ? "" : " (over all of these schedules)");
  std::fflush(stdout);
}

}  // namespace perf
