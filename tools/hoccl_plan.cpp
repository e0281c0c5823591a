// hoccl-plan shows, proves and draws the plan of a schedule for any shape, or one that a text file holds
// (docs/plan.md). It needs no ranks, no network and no memory: a plan is data. Read next: src/plan/plan.hpp,
// src/verify/verify.hpp.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "src/base/error.hpp"
#include "src/plan/plan.hpp"
#include "src/schedules/schedule.hpp"
#include "src/verify/facts.hpp"
#include "src/verify/verify.hpp"
#include "topology/groups.hpp"

namespace {

using namespace hoccl;

constexpr int kProved = 0, kNotProved = 1, kBadUsage = 2, kCannotWrite = 3;
constexpr int kMostRanks = 4096;  // beyond, a whole plan takes gigabytes

struct Options {
  std::string schedule = "ho_ring", collective = "all_reduce", plan_file, output;
  int nodes = 2, per_node = 4, parts = 1;
  int rank = -1;       // print: all
  bool links = false;  // verify: each link's messages
};

constexpr const char* kExamples = R"(Examples:
  hoccl-plan print --schedule ring --collective all_gather --nodes 1 --ranks-per-node 4 --rank 0
  hoccl-plan verify --schedule ho_ring --collective all_reduce --nodes 2 --ranks-per-node 4 --parts 2
  hoccl-plan draw --schedule ho_ring --nodes 2 --ranks-per-node 4 -o plan.svg
  hoccl-plan print -o mine.plan; hoccl-plan verify --plan mine.plan     after a change by hand
  hoccl-plan list
Status: 0 done or proved, 1 not proved, 2 wrong usage, 3 the output cannot be written.)";

std::string schedule_names() {
  std::string names;
  for (const Schedule& schedule : all_schedules())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", schedule.name);
  return names;
}

Groups groups_of(const Options& options) {
  require(static_cast<long long>(options.nodes) * options.per_node <= kMostRanks, Code::invalid_usage,
          "{} nodes x {} ranks are more than the {} ranks whose plan this program makes", options.nodes,
          options.per_node, kMostRanks);
  return Groups::even(options.nodes, options.per_node);
}

Plan plan_of(const Options& options, const Groups& groups) {
  if (!options.plan_file.empty()) {
    std::ifstream file(options.plan_file);
    if (!file) fail_errno(fmt::format("cannot read the plan {}", options.plan_file));
    std::stringstream text;
    text << file.rdbuf();
    return parse_plan(text.str());
  }
  const Schedule* schedule = find_schedule(options.schedule);
  require(schedule != nullptr, Code::invalid_usage, "there is no schedule '{}': one of {}", options.schedule,
          schedule_names());
  const std::optional<Kind> kind = kind_named(options.collective);
  require(kind.has_value(), Code::invalid_usage,
          "there is no collective '{}': one of all_reduce, reduce_scatter, all_gather", options.collective);
  return whole_plan(*schedule, groups, {*kind, groups.ranks()}, options.parts);
}

int write_out(const Options& options, const std::string& text) {
  if (options.output.empty()) {
    std::cout << text << std::flush;
    return std::cout ? 0 : kCannotWrite;
  }
  std::ofstream file(options.output);
  file << text;
  file.close();
  if (file) return 0;
  std::fprintf(stderr, "hoccl-plan: cannot write %s: %s\n", options.output.c_str(), errno_text(errno).c_str());
  return kCannotWrite;
}

int print(const Options& options) {
  const Plan plan = plan_of(options, groups_of(options));
  if (options.rank < 0) return write_out(options, to_text(plan));
  require(options.rank < static_cast<int>(plan.programs.size()), Code::invalid_usage,
          "there is no rank {} in a plan of {} ranks", options.rank, plan.programs.size());
  return write_out(options,
                   to_text(plan.programs[static_cast<std::size_t>(options.rank)], static_cast<Rank>(options.rank)));
}

// What each node sends to others, in parts of the whole buffer S: the bound for its network card follows from it.
std::string shares(const Facts& facts, const Plan& plan) {
  if (facts.leaving.size() < 2) return "";
  const double blocks = static_cast<double>(plan.collective.ranks) * plan.parts;
  std::string text = fmt::format("S is the whole buffer, {} blocks:\n", plan.collective.ranks * plan.parts);
  for (std::size_t node = 0; node < facts.leaving.size(); ++node)
    text += fmt::format("node {}: {:.4g} S leaves, {:.4g} S enters\n", node,
                        static_cast<double>(facts.leaving[node]) / blocks,
                        static_cast<double>(facts.entering[node]) / blocks);
  return text;
}

std::string links_of(const Facts& facts) {
  std::string text = "channel  from   to  credits  blocks\n";
  for (const ChannelFact& c : facts.channels)
    text += fmt::format("{:8} {:4} {:4}  {:7}  {:6}\n", name_of(c.label), index(c.from), index(c.to), c.credits,
                        c.messages);
  return text;
}

int verify_plan(const Options& options) {
  const Groups groups = groups_of(options);
  const Plan plan = plan_of(options, groups);
  require(groups.ranks() == static_cast<int>(plan.programs.size()), Code::invalid_usage,
          "the plan {} is of {} ranks: say with --nodes and --ranks-per-node how they are placed", options.plan_file,
          plan.programs.size());
  std::string text = fmt::format("{} {} on {}, {} {} a block\n", plan.schedule, name_of(plan.collective.kind),
                                 groups.describe(), plan.parts, plan.parts == 1 ? "part" : "parts");
  bool proved = true;
  for (const bool in_place : {false, true}) {
    VerifyOptions how;
    how.in_place = in_place;
    const Report report = verify(plan, how);
    proved = proved && report.proved();
    text += fmt::format("{}:{}{}\n", in_place ? "in place" : "out of place", report.proved() ? " " : "\n",
                        report.describe());
  }
  if (proved) {
    text += fmt::format(
        "proved for every timing, size, type and any more credits: no lane gets stuck, every rank ends with exactly "
        "what\n"
        "{} promises, no lane touches a block that another has not finished with; in {} rounds after each other, with\n"
        "messages by reference or by value\n",
        name_of(plan.collective.kind), VerifyOptions{}.rounds);
  } else {
    text += "NOT PROVED\n";
  }
  std::vector<int> node_of;
  for (int r = 0; r < groups.ranks(); ++r) node_of.push_back(groups.node_of(static_cast<Rank>(r)));
  if (proved) {  // facts of a plan of bad shape mean nothing
    const Facts facts = facts_of(plan, node_of);
    text += facts.describe() + shares(facts, plan);
    if (options.links) text += links_of(facts);
  }
  const int written = write_out(options, text);
  return written != 0 ? written : proved ? kProved : kNotProved;
}

int draw(const Options& options) {
  const Plan plan = plan_of(options, groups_of(options));
  const int written = write_out(options, to_svg(plan));
  if (written == 0 && !options.output.empty()) std::printf("drawn in %s\n", options.output.c_str());
  return written;
}

int list() {
  for (const Schedule& schedule : all_schedules())
    std::cout << fmt::format("{:10} {}\n", schedule.name, schedule.summary);
  return 0;
}

CLI::App* add_command(CLI::App& app, Options& options, const std::string& name, const std::string& summary) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->option_defaults()->always_capture_default();
  command->add_option("--schedule", options.schedule, "which schedule makes the plan");
  command->add_option("--collective", options.collective, "all_reduce, reduce_scatter or all_gather");
  command->add_option("--nodes", options.nodes, "number of nodes")->check(CLI::Range(1, kMostRanks));
  command->add_option("--ranks-per-node", options.per_node, "ranks on each node")->check(CLI::Range(1, kMostRanks));
  command->add_option("--parts", options.parts, "parts that each block is cut into")->check(CLI::Range(1, kMaxParts));
  command->add_option("--plan", options.plan_file, "take the plan from this file instead, as `print` writes it");
  command->add_option("-o,--output", options.output, "write to this file instead of the standard output");
  return command;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Shows, proves and draws plans.");
  app.name("hoccl-plan");
  app.footer(kExamples);
  app.require_subcommand(1);
  CLI::App* print_command = add_command(app, options, "print", "print the plan's text");
  print_command->add_option("--rank", options.rank, "only this rank's program")->check(CLI::Range(0, kMostRanks));
  CLI::App* verify_command = add_command(app, options, "verify", "prove the plan, in place and out of place");
  verify_command->add_flag("--links", options.links, "also print the messages of every link");
  CLI::App* draw_command = add_command(app, options, "draw", "draw the plan as SVG");
  app.add_subcommand("list", "name the schedules");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "hoccl-plan: %s; hoccl-plan -h shows commands and examples\n", error.what());
    return kBadUsage;
  }
  try {
    if (*print_command) return print(options);
    if (*verify_command) return verify_plan(options);
    return *draw_command ? draw(options) : list();
  } catch (const Error& error) {
    std::fprintf(stderr, "hoccl-plan: %s\n", error.what());
    return kBadUsage;
  }
}
