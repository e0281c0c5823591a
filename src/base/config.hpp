// THE table of knobs (config.cpp) and the value that it is read into. Read once when a communicator is made, then
// passed down; nothing else in the library reads the environment. *Agreed* knobs must be equal on all ranks and are
// compared at start; *local* ones may differ. Floor 0.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hoccl {

// A list of names, or all but the names ("^a,b"). Empty and not excluding: no restriction.
struct NameFilter {
  bool exclude = false;
  std::vector<std::string> names;

  bool accepts(std::string_view name) const;
  bool operator==(const NameFilter&) const = default;
};

enum class LogLevel { none, version, warn, info, trace };

struct Config {
  NameFilter schedules;                       // HOCCL_SCHEDULE
  NameFilter transports;                      // HOCCL_TRANSPORTS
  std::string host_id;                        // HOCCL_HOSTID; empty: found from the machine
  std::string id;                             // HOCCL_ID, see unique ids in src/bootstrap/bootstrap.hpp
  std::chrono::milliseconds start_timeout{};  // HOCCL_START_TIMEOUT
  std::chrono::milliseconds timeout{};        // HOCCL_TIMEOUT; 0: none
  LogLevel debug = LogLevel::none;            // NCCL_DEBUG
  std::string debug_file;                     // NCCL_DEBUG_FILE (%h host, %p pid)
};

enum class Scope { local, agreed };

// One row of the table, as hoccl-info and the documentation show it.
struct KnobRow {
  std::string_view name;
  std::string_view aliases;  // names that NCCL's users know, separated by blanks
  std::string_view form;     // of its value
  std::string_view fallback;
  Scope scope;
  std::string_view help;
};
std::span<const KnobRow> knob_rows();

// Reads the environment. Throws Error{invalid_argument} that names the knob, its value and the form it should have.
Config read_config();

// The agreed knobs as text "NAME=value" lines, for comparison among ranks.
std::string agreed_text(const Config& config);

// Lines of warning about HOCCL_ names that are in no row, with the nearest known name.
std::vector<std::string> unknown_knobs();

// "8", "64K", "1.5M", "2G" (binary) → number; throws Error{invalid_argument} naming `what`.
long long parse_size(std::string_view text, std::string_view what);

}  // namespace hoccl
