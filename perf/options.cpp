// Options by CLI11. An error names the option and points to -h; its exit status is 2.
#include "perf/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <system_error>

namespace perf {
namespace {

constexpr std::array<NamedType, 12> kTypes{{{ncclInt8, "int8", 1},
                                            {ncclUint8, "uint8", 1},
                                            {ncclInt32, "int32", 4},
                                            {ncclUint32, "uint32", 4},
                                            {ncclInt64, "int64", 8},
                                            {ncclUint64, "uint64", 8},
                                            {ncclHalf, "half", 2},
                                            {ncclFloat, "float", 4},
                                            {ncclDouble, "double", 8},
                                            {ncclBfloat16, "bfloat16", 2},
                                            {ncclFloat8e4m3, "f8e4m3", 1},
                                            {ncclFloat8e5m2, "f8e5m2", 1}}};
constexpr std::array<NamedOp, 5> kOps{
    {{ncclSum, "sum"}, {ncclProd, "prod"}, {ncclMax, "max"}, {ncclMin, "min"}, {ncclAvg, "avg"}}};

// "8", "64K", "1.5M", "2G", binary; -1 when it is none of these.
long long bytes_in(const std::string& text) {
  char* end = nullptr;
  double bytes = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !(bytes >= 0)) return -1;
  const std::string unit = end;
  if (unit == "K" || unit == "k") bytes *= 0x1p10;
  if (unit == "M" || unit == "m") bytes *= 0x1p20;
  if (unit == "G" || unit == "g") bytes *= 0x1p30;
  const bool known = unit.empty() || (unit.size() == 1 && std::string("KkMmGg").find(unit) != std::string::npos);
  return known && bytes < 0x1p62 ? static_cast<long long>(bytes) : -1;
}

// -1 when it is not a whole number from 0.
int number_in(const std::string& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

std::string size_error(const std::string& text) {
  return bytes_in(text) < 0 ? "'" + text + "' is not a size such as 8, 64K, 1.5M or 2G" : std::string();
}

template <class Row, std::size_t n>
std::string names_of(const std::array<Row, n>& rows) {
  std::string text;
  for (const Row& row : rows) text += std::string(row.name) + " ";
  return text + "all";
}

template <class Row, std::size_t n>
std::vector<Row> rows_named(const std::array<Row, n>& rows, const std::string& name) {
  std::vector<Row> found;
  for (const Row& row : rows)
    if (name == "all" || name == row.name) found.push_back(row);
  return found;
}

template <class Row, std::size_t n>
CLI::Validator one_of(const std::array<Row, n>& rows) {
  return CLI::Validator(
      [&rows](std::string& name) {
        return rows_named(rows, name).empty() ? "'" + name + "' is none of: " + names_of(rows) : std::string();
      },
      "", "");
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

std::string examples(const std::string& program) {
  return "Examples:\n  " + program + " -g 4 -b 8 -e 64M -f 2\n" +
         "      four ranks in this thread, 8 bytes to 64 MiB, doubling\n  " + program +
         " -t 2 -g 2 -d all -o all -b 64K -e 64K\n" +
         "      two threads of two ranks, every type and operation\n  hoccl-run -n 8 --nodes 2 " + program +
         " -b 1M -e 64M -f 4 --schedule ring,ho_ring --counters\n" +
         "      eight processes on two pretended nodes, two schedules in turn\n";
}

int refuse(const std::string& program, const std::string& why) {
  std::fprintf(stderr, "%s: %s\nSee %s -h for the options.\n", program.c_str(), why.c_str(), program.c_str());
  return 2;
}

// What the command line gives as text.
struct Texts {
  std::string min_bytes = "32M", max_bytes, step_bytes = "1M", type = "float", op = "sum", schedules;
  int ignored = 0;                               // options of nccl-tests that change nothing here
  std::string rank = "0", world_size = "1", id;  // from the launcher
};

void declare(CLI::App& app, Options& o, Texts& t) {
  const CLI::Validator size([](std::string& text) { return size_error(text); }, "", "");
  // Without a description, which the help would repeat in every line.
  const CLI::Validator natural = CLI::Range(1, 1 << 30).description("");
  const CLI::Validator from_zero = CLI::Range(0, 1 << 30).description(""), many = CLI::Range(1, 4096).description("");
  app.add_option("-b,--minbytes", t.min_bytes, "smallest size; K, M, G are binary (32M)")->check(size);
  app.add_option("-e,--maxbytes", t.max_bytes, "largest size (32M, or -b when that is more)")->check(size);
  app.add_option("-i,--stepbytes", t.step_bytes, "step between sizes (1M)")->check(size);
  app.add_option("-f,--stepfactor", o.step_factor, "factor between sizes, instead of a step")->check(natural);
  app.add_option("-n,--iters", o.iterations, "timed iterations; with --schedule, spread over the batches (20)")
      ->check(natural);
  app.add_option("-w,--warmup_iters", o.warmup, "iterations before, not timed (1)")->check(from_zero);
  app.add_option("-m,--agg_iters", o.aggregate, "operations that each iteration launches as one group (1)")
      ->check(many);
  app.add_option("-c,--check", o.checks, "checked iterations of each row, 0 for none (1)")->check(from_zero);
  app.add_option("-o,--op", t.op, "operation: " + names_of(kOps) + " (sum)")->check(one_of(kOps));
  app.add_option("-d,--datatype", t.type, "element type: " + names_of(kTypes) + " (float)")->check(one_of(kTypes));
  app.add_option("-g,--ngpus", o.ranks_per_thread, "ranks of each thread (1)")->check(many);
  app.add_option("-t,--nthreads", o.threads, "threads of each process (1)")->check(many);
  const CLI::Validator either = CLI::Range(0, 1).description(""), root = CLI::Range(0, 0).description("");
  app.add_option("-z,--blocking", t.ignored, "0 or 1, no effect here: every call blocks until it is complete")
      ->check(either);
  app.add_option("-p,--parallel_init", t.ignored, "0 or 1, no effect here: threads always join at the same time")
      ->check(either);
  app.add_option("-r,--root", t.ignored, "0, no effect here: this collective has no root")->check(root);
  app.add_option("--schedule", t.schedules, "run these schedules in turn (A B A B), compare them, with the bound");
  app.add_flag("--counters", o.counters, "payload bytes of one operation, by rank and channel");
  // From the launcher; an empty group keeps them out of the help.
  app.add_option("--process", t.rank)->envname("RANK")->group("");
  app.add_option("--processes", t.world_size)->envname("WORLD_SIZE")->group("");
  app.add_option("--id", t.id)->envname("HOCCL_ID")->group("");
}

// Empty, or why the options cannot be right together.
std::string settle(Options& o, const Texts& t) {
  o.min_bytes = bytes_in(t.min_bytes);
  o.max_bytes = t.max_bytes.empty() ? std::max(o.min_bytes, o.max_bytes) : bytes_in(t.max_bytes);
  o.step_bytes = bytes_in(t.step_bytes);
  o.types = rows_named(kTypes, t.type);
  o.ops = o.collective == Collective::all_gather ? std::vector<NamedOp>{{ncclSum, "none"}} : rows_named(kOps, t.op);
  o.schedules = split(t.schedules);
  if (o.max_bytes < o.min_bytes) return "the largest size (-e) is below the smallest (-b)";
  if (o.step_factor <= 1 && o.step_bytes <= 0) return "the step between sizes (-i) is 0";
  const std::string world = "WORLD_SIZE=" + t.world_size;
  o.process = number_in(t.rank);
  o.processes = number_in(t.world_size);
  if (o.processes < 1 || o.process < 0 || o.process >= o.processes)
    return "RANK=" + t.rank + " is not one of the processes 0 to " + world + " - 1";
  if (o.processes > 1 && t.id.empty())
    return world + " but HOCCL_ID is not set, so the processes cannot find each other; hoccl-run sets both";
  return "";
}

}  // namespace

int parse(int argc, char** argv, const char* collective, Options& o) {
  const std::string program = std::string(collective) + "_perf";
  o.collective_name = collective;
  o.collective = o.collective_name == "all_reduce"   ? Collective::all_reduce
                 : o.collective_name == "all_gather" ? Collective::all_gather
                                                     : Collective::reduce_scatter;
  Texts texts;
  CLI::App app{"Times " + o.collective_name + " over host memory and checks every result."};
  app.name(program);
  app.footer(examples(program));
  declare(app, o, texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ExtrasError&) {
    return refuse(program, "unknown option " + app.remaining().front());
  } catch (const CLI::ParseError& error) {
    return refuse(program, error.what());
  }
  const std::string why = settle(o, texts);
  return why.empty() ? -1 : refuse(program, why);
}

}  // namespace perf
