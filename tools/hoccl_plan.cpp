// hoccl-plan shows, proves and draws the plan of a schedule for any shape, or one that a text file holds
// (docs/plan.md). It needs no ranks, no network and no memory: a plan is data. Read next: src/plan/plan.hpp,
// src/verify/verify.hpp.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.hpp"
#include "src/plan/plan.hpp"
#include "src/schedules/schedule.hpp"
#include "src/verify/facts.hpp"
#include "src/verify/verify.hpp"
#include "topology/groups.hpp"

namespace {

using namespace hoccl;

constexpr int kProved = 0, kNotProved = 1, kBadUsage = 2, kCannotWrite = 3;
constexpr int kMostRanks = 4096;                           // beyond, a whole plan takes gigabytes
constexpr std::size_t kMostText = std::size_t{256} << 20;  // bytes of a plan that are read

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
verify takes at most 512 ranks; print and draw at most 4096, of which draw shows the first 64.
Status: 0 done or proved, 1 not proved or drawn stuck, 2 wrong usage, 3 the output cannot be written.)";

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

std::string text_of(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "r"), std::fclose);
  if (!file) fail_errno(fmt::format("cannot read the plan {}", path));
  std::string text;
  std::vector<char> bytes(std::size_t{1} << 16);
  while (const std::size_t n = std::fread(bytes.data(), 1, bytes.size(), file.get())) {
    text.append(bytes.data(), n);
    require(text.size() <= kMostText, Code::invalid_usage,
            "the plan {} is longer than the 256 MiB that are read: is it the file that you mean?", path);
  }
  if (std::ferror(file.get()) != 0) fail_errno(fmt::format("cannot read the plan {}", path));
  return text;
}

// The node of each rank; empty for a plan from a file, which does not say.
std::vector<int> nodes_of(const Options& options) {
  std::vector<int> nodes;
  if (!options.plan_file.empty()) return nodes;
  for (int r = 0; r < options.nodes * options.per_node; ++r) nodes.push_back(r / options.per_node);
  return nodes;
}

Plan plan_of(const Options& options) {
  if (!options.plan_file.empty()) {
    Plan plan = parse_plan(text_of(options.plan_file));
    require(plan.parts >= 1 && plan.parts <= kMaxParts, Code::invalid_usage,
            "the plan {} has {} parts: must be 1 to {}", options.plan_file, plan.parts, kMaxParts);
    return plan;
  }
  const Schedule* schedule = find_schedule(options.schedule);
  require(schedule != nullptr, Code::invalid_usage, "there is no schedule '{}': one of {}", options.schedule,
          schedule_names());
  const std::optional<Kind> kind = kind_named(options.collective);
  require(kind.has_value(), Code::invalid_usage,
          "there is no collective '{}': one of all_reduce, reduce_scatter, all_gather", options.collective);
  const Groups groups = groups_of(options);
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
  const Plan plan = plan_of(options);
  if (options.rank < 0) return write_out(options, to_text(plan));
  require(options.rank < static_cast<int>(plan.programs.size()), Code::invalid_usage,
          "there is no rank {} in a plan of {}", options.rank,
          counted(static_cast<std::int64_t>(plan.programs.size()), "rank"));
  return write_out(options,
                   to_text(plan.programs[static_cast<std::size_t>(options.rank)], static_cast<Rank>(options.rank)));
}

// What each node sends to others, in parts of the whole buffer S: the bound for its network card follows from it.
std::string shares(const Facts& facts, const Plan& plan) {
  if (facts.leaving.size() < 2) return "";
  const double blocks = static_cast<double>(plan.collective.ranks) * plan.parts;
  std::string text = fmt::format("S is the whole buffer, {}:\n", counted(plan.collective.ranks * plan.parts, "block"));
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
  const Plan plan = plan_of(options);
  const std::vector<int> node_of = nodes_of(options);
  const std::string where = node_of.empty() ? counted(plan.collective.ranks, "rank") + " (their nodes are unknown)"
                                            : groups_of(options).describe();
  std::string text = fmt::format("{} {} on {}, {} a block\n", plan.schedule, name_of(plan.collective.kind), where,
                                 counted(plan.parts, "part"));
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
  if (proved) {  // facts of a plan of bad shape mean nothing
    const Facts facts = facts_of(plan, node_of);
    text += facts.describe() + shares(facts, plan);
    if (options.links) text += links_of(facts);
  }
  const int written = write_out(options, text);
  return written != 0 ? written : proved ? kProved : kNotProved;
}

int draw(const Options& options) {
  const Plan plan = plan_of(options);
  std::int64_t stuck = 0;
  const int written = write_out(options, to_svg(plan, nodes_of(options), &stuck));
  if (written != 0) return written;
  if (!options.output.empty()) std::printf("drawn in %s\n", options.output.c_str());
  if (stuck == 0) return kProved;
  std::fprintf(stderr, "hoccl-plan: the plan gets stuck: %s can never fire; it is drawn as far as it comes\n",
               counted(stuck, "step").c_str());
  return kNotProved;
}

int list() {
  for (const Schedule& schedule : all_schedules())
    std::cout << fmt::format("{:10} {}\n", schedule.name, schedule.summary);
  return 0;
}

// A number from 1 to `most`, which help and refusal state alike.
void add_number(CLI::App& command, const std::string& name, int& number, const std::string& what, int most) {
  const std::string range = fmt::format("1 to {}", most);
  command.add_option(name, number, what + ", " + range)->check([range, most](const std::string& text) {
    int value = 0;
    const bool fine = CLI::detail::lexical_cast(text, value) && value >= 1 && value <= most;
    return fine ? std::string() : fmt::format("'{}' must be {}", text, range);
  });
}

// A plan from a file is whole: what would have made another one contradicts it.
void refuse_contradiction(const CLI::App& command) {
  if (command.count("--plan") == 0) return;
  for (const char* name : {"--schedule", "--collective", "--nodes", "--ranks-per-node", "--parts"})
    require(command.count(name) == 0, Code::invalid_usage,
            "--plan and {} exclude each other: the file holds a whole plan, of its own schedule and shape", name);
}

// CLI11 says only that a subcommand is missing.
void refuse_unknown_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == argv[1]) return;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  fail(Code::invalid_usage, "there is no command '{}': one of {}; hoccl-plan -h shows them and examples", argv[1],
       names);
}

CLI::App* add_command(CLI::App& app, Options& options, const std::string& name, const std::string& summary) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->option_defaults()->always_capture_default();
  command->add_option("--schedule", options.schedule, "which schedule makes the plan: one of " + schedule_names());
  command->add_option("--collective", options.collective, "all_reduce, reduce_scatter or all_gather");
  add_number(*command, "--nodes", options.nodes, "number of nodes", kMostRanks);
  add_number(*command, "--ranks-per-node", options.per_node, "ranks on each node", kMostRanks);
  add_number(*command, "--parts", options.parts, "parts that each block is cut into", kMaxParts);
  command->add_option("--plan", options.plan_file,
                      "take the plan from this file, as `print` writes it, instead of making it by the options above");
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
  print_command->add_option("--rank", options.rank, "only this rank's program, counted from 0")
      ->check(CLI::NonNegativeNumber)
      ->default_str("");
  CLI::App* verify_command =
      add_command(app, options, "verify",
                  "prove the plan, in place and out of place; at most " + counted(kMaxVerifiedRanks, "rank"));
  verify_command->add_flag("--links", options.links, "also print the messages of every link");
  CLI::App* draw_command = add_command(app, options, "draw", "draw the plan as SVG");
  const CLI::App* list_command = app.add_subcommand("list", "name the schedules");
  try {
    refuse_unknown_command(app, argc, argv);
    app.parse(argc, argv);
    for (const CLI::App* command : app.get_subcommands())
      if (command != list_command) refuse_contradiction(*command);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "hoccl-plan: %s; hoccl-plan -h shows commands and examples\n", error.what());
    return kBadUsage;
  } catch (const Error& error) {
    std::fprintf(stderr, "hoccl-plan: %s\n", error.what());
    return kBadUsage;
  }
  try {
    if (*print_command) return print(options);
    if (*verify_command) return verify_plan(options);
    return *draw_command ? draw(options) : list();
  } catch (const Error& error) {
    std::fprintf(stderr, "hoccl-plan: %s\n", error.what());
    return kBadUsage;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "hoccl-plan: this plan needs more memory than there is: take fewer ranks, parts or scratch\n");
    return kBadUsage;
  }
}
