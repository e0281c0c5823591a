// hoccl-info says what this build is and what it would use here: version, compiler, kernels, transports, schedules, and
// every knob with its value and where that comes from. A communicator of one rank is made and ended, so that settings
// which the library refuses are refused here too, in its own words.
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/config.hpp"
#include "src/base/error.hpp"
#include "src/bootstrap/bootstrap.hpp"
#include "src/comm/communicator.hpp"
#include "src/device/device.hpp"
#include "src/schedules/schedule.hpp"
#include "topology/identity.hpp"
#include "transports/transport.hpp"

namespace {

using namespace hoccl;

#if defined(__clang__)
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "gcc " __VERSION__;
#endif

std::vector<std::string> names_of(const KnobRow& row) {
  std::vector<std::string> names{std::string(row.name)};
  std::istringstream aliases{std::string(row.aliases)};
  for (std::string name; aliases >> name;) names.push_back(name);
  return names;
}

// The value in force and where it is from; the knob's own HOCCL_ name hides its aliases (src/base/config.cpp).
std::string setting_of(const KnobRow& row) {
  std::string from_alias;
  for (const std::string& name : names_of(row)) {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') continue;
    const std::string set = fmt::format("{} (environment, {})", value, name);
    if (name.starts_with("HOCCL_")) return set;
    from_alias += (from_alias.empty() ? "" : ", ") + set;
  }
  if (!from_alias.empty()) return from_alias;
  return row.fallback.empty() ? "not set (default)" : fmt::format("{} (default)", row.fallback);
}

void show_machine() {
  utsname system{};
  uname(&system);
  fmt::print("hoccl {}, {}\n", HOCCL_VERSION, kCompiler);
  fmt::print("host       {}, {} {} {}\n", host_name(), system.sysname, system.release, system.machine);
  fmt::print("cores      {} usable by this process\n", std::thread::hardware_concurrency());
  fmt::print("kernels    {}\n", host_kernels());
}

void show_lists(const Config& config) {
  fmt::print("\ntransports, in order of preference\n");
  for (const TransportRow& row : all_transports())
    fmt::print("  {:10} {}{}\n", row.name, row.summary,
               config.transports.accepts(row.name) ? "" : " (excluded by HOCCL_TRANSPORTS)");
  fmt::print("\nschedules\n");
  for (const Schedule& row : all_schedules())
    fmt::print("  {:10} {}{}\n", row.name, row.summary,
               config.schedules.accepts(row.name) ? "" : " (excluded by HOCCL_SCHEDULE)");
}

void show_knobs() {
  fmt::print("\nknobs (agreed: must be equal on all ranks)\n");
  for (const KnobRow& row : knob_rows()) {
    fmt::print("  {} = {}\n", row.name, setting_of(row));
    fmt::print("      {}; {}; {}{}\n", row.help, row.form, row.scope == Scope::agreed ? "agreed" : "local",
               row.aliases.empty() ? "" : fmt::format("; also {}", row.aliases));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Says what this build of the library is, and what it would use here.");
  app.name("hoccl-info");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "hoccl-info: %s\n", error.what());
    return 2;
  }
  int status = 0;
  Config config;
  try {
    config = read_config();
    const Communicator alone(std::move(join_threads(1, config.start_timeout).front()), config, 0);
  } catch (const Error& error) {
    std::fprintf(stderr, "hoccl-info: %s\n", error.what());
    status = 1;  // the rest is shown all the same
  }
  show_machine();
  show_lists(config);
  show_knobs();
  for (const std::string& warning : unknown_knobs()) fmt::print("warning: {}\n", warning);
  return status;
}
