// THE table of knobs: one row says a knob's names, the form of its value, its default, who must agree on it and how it
// is read into Config. The only file that looks at the environment. Read next: src/base/config.hpp for what the values
// mean.
#include "src/base/config.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "src/base/error.hpp"

namespace hoccl {
namespace {

// One name of the environment that is set, and not to nothing.
struct Setting {
  std::string_view name;
  std::string_view value;
};

constexpr std::string_view kOurs = "HOCCL_";

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

[[noreturn]] void refuse(const Setting& setting, std::string_view form) {
  fail(Code::invalid_argument, "{}=\"{}\": expected {}", setting.name, setting.value, form);
}

NameFilter parse_filter(const Setting& setting) {
  NameFilter filter;
  std::string_view rest = trim(setting.value);
  if (rest.starts_with('^')) filter.exclude = true, rest.remove_prefix(1);
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string name = lower(trim(rest.substr(0, comma)));
    if (name.empty() || name.find_first_of(" ^") != std::string::npos) refuse(setting, "names as a,b or ^a,b");
    if (std::find(filter.names.begin(), filter.names.end(), name) == filter.names.end()) filter.names.push_back(name);
    if (comma == std::string_view::npos) return filter;
    rest.remove_prefix(comma + 1);
  }
}

// NCCL's switches: a whole number, anything but 0 is yes.
bool parse_switch(const Setting& setting) {
  const std::string_view text = trim(setting.value);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) refuse(setting, "0 or 1");
  return number != 0;
}

std::optional<double> parse_number(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) return std::nullopt;
  return number;
}

std::chrono::milliseconds parse_seconds(const Setting& setting, bool zero_allowed) {
  constexpr double kLongest = 1e9;  // seconds; 30 years, and far from overflow in any unit
  const std::string_view form = zero_allowed ? "seconds, 0 for no limit" : "seconds, at least 0.001";
  const auto seconds = parse_number(trim(setting.value));
  if (!seconds || *seconds < 0 || *seconds > kLongest) refuse(setting, form);
  const auto whole = std::chrono::milliseconds(std::llround(*seconds * 1000));
  if (whole.count() == 0 && !(zero_allowed && *seconds == 0)) refuse(setting, form);
  return whole;
}

void read_schedules(Config& config, const Setting& setting) { config.schedules = parse_filter(setting); }

// NCCL_NET speaks of networks only: what moves bytes inside a node stays allowed beside it.
void read_network(NameFilter& transports, const Setting& setting) {
  std::string name = lower(trim(setting.value));
  if (name == "socket") name = "tcp";
  if (name == "ib") name = "verbs";
  transports = {false, {"local", "shm", name}};
}

void forbid(NameFilter& transports, const std::string& name) {
  if (transports.names.empty()) transports.exclude = true;
  if (transports.exclude) {
    transports.names.push_back(name);
  } else {
    std::erase(transports.names, name);
  }
}

// NCCL's aliases add up, in the order of the row: first the network, then what is forbidden.
void read_transports(Config& config, const Setting& setting) {
  if (setting.name == "NCCL_NET") {
    read_network(config.transports, setting);
  } else if (setting.name == "NCCL_SHM_DISABLE") {
    if (parse_switch(setting)) forbid(config.transports, "shm");
  } else if (setting.name == "NCCL_P2P_DISABLE") {
    if (parse_switch(setting)) forbid(config.transports, "local");
  } else {
    config.transports = parse_filter(setting);
  }
}

void read_host_id(Config& config, const Setting& setting) { config.host_id = setting.value; }
void read_id(Config& config, const Setting& setting) { config.id = trim(setting.value); }
void read_start_timeout(Config& config, const Setting& setting) {
  config.start_timeout = parse_seconds(setting, false);
}
void read_timeout(Config& config, const Setting& setting) { config.timeout = parse_seconds(setting, true); }

void read_debug(Config& config, const Setting& setting) {
  const std::string name = lower(trim(setting.value));
  constexpr std::array<std::string_view, 5> kNames{"none", "version", "warn", "info", "trace"};  // in LogLevel's order
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) refuse(setting, "VERSION, WARN, INFO or TRACE");
  config.debug = static_cast<LogLevel>(found - kNames.begin());
}
void read_debug_file(Config& config, const Setting& setting) { config.debug_file = setting.value; }

struct Row {
  KnobRow shown;
  void (*read)(Config&, const Setting&);
};

// clang-format off
constexpr std::array<Row, 8> kTable{{
    {{"HOCCL_SCHEDULE", "NCCL_ALGO", "names a,b, or ^a,b for all but these", "", Scope::agreed,
      "the schedules that may be chosen"},
     read_schedules},
    {{"HOCCL_TRANSPORTS", "NCCL_NET NCCL_SHM_DISABLE NCCL_P2P_DISABLE", "names a,b, or ^a,b for all but these", "",
      Scope::agreed,
      "the transports that may be chosen; NCCL_NET (Socket: tcp, IB: verbs) restricts networks only, "
      "NCCL_SHM_DISABLE=1 excludes shm, NCCL_P2P_DISABLE=1 excludes local"},
     read_transports},
    {{"HOCCL_HOSTID", "NCCL_HOSTID", "text", "", Scope::local,
      "the node that this process belongs to, instead of what the machine says"},
     read_host_id},
    {{"HOCCL_ID", "NCCL_COMM_ID", "host:port", "", Scope::local,
      "where rank 0 listens at start, instead of the process that made the unique id"},
     read_id},
    {{"HOCCL_START_TIMEOUT", "", "seconds, at least 0.001", "120", Scope::local,
      "how long ranks wait for each other when a communicator is made"},
     read_start_timeout},
    {{"HOCCL_TIMEOUT", "", "seconds, 0 for no limit", "1800", Scope::local,
      "how long an operation may make no progress before it fails"},
     read_timeout},
    {{"NCCL_DEBUG", "HOCCL_DEBUG", "VERSION, WARN, INFO or TRACE", "", Scope::local,
      "what is logged; nothing by default"},
     read_debug},
    {{"NCCL_DEBUG_FILE", "HOCCL_DEBUG_FILE", "file name, %h host, %p process; or stderr", "stdout", Scope::local,
      "where log lines go"},
     read_debug_file},
}};
// clang-format on

constexpr auto kShown = [] {
  std::array<KnobRow, kTable.size()> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = kTable[i].shown;
  return rows;
}();

std::vector<std::string> names_of(const KnobRow& row) {
  std::vector<std::string> names{std::string(row.name)};
  std::string_view rest = row.aliases;
  while (!rest.empty()) {
    const std::size_t blank = rest.find(' ');
    names.emplace_back(rest.substr(0, blank));
    rest.remove_prefix(blank == std::string_view::npos ? rest.size() : blank + 1);
  }
  // Our own name is the first, and the only one that counts when it is set.
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) { return name.starts_with(kOurs); });
  return names;
}

void read_row(Config& config, const Row& row) {
  if (!row.shown.fallback.empty()) row.read(config, {row.shown.name, row.shown.fallback});
  for (const std::string& name : names_of(row.shown)) {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') continue;
    row.read(config, {name, value});
    if (name.starts_with(kOurs)) return;
  }
}

std::string filter_text(const NameFilter& filter) {
  return fmt::format("{}{}", filter.exclude ? "^" : "", fmt::join(filter.names, ","));
}

// Levenshtein's distance: the least number of letters to insert, delete or replace.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

bool NameFilter::accepts(std::string_view name) const {
  if (names.empty()) return true;
  const bool named = std::find(names.begin(), names.end(), name) != names.end();
  return named != exclude;
}

std::span<const KnobRow> knob_rows() { return kShown; }

Config read_config() {
  Config config;
  for (const Row& row : kTable) read_row(config, row);
  return config;
}

std::string agreed_text(const Config& config) {
  return fmt::format("HOCCL_SCHEDULE={}\nHOCCL_TRANSPORTS={}\n", filter_text(config.schedules),
                     filter_text(config.transports));
}

std::vector<std::string> unknown_knobs() {
  std::vector<std::string> known;
  for (const KnobRow& row : kShown)
    for (const std::string& name : names_of(row))
      if (name.starts_with(kOurs)) known.push_back(name);
  std::vector<std::string> warnings;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view setting(*entry);
    const std::string_view name = setting.substr(0, setting.find('='));
    // HOCCL_TEST_ names belong to test programs.
    if (!name.starts_with(kOurs) || name.starts_with("HOCCL_TEST_")) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto nearest = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
      return distance(a, name) < distance(b, name);
    });
    warnings.push_back(fmt::format("{} is no knob of this library and is ignored; did you mean {}?", name, *nearest));
  }
  std::sort(warnings.begin(), warnings.end());
  return warnings;
}

long long parse_size(std::string_view text, std::string_view what) {
  constexpr std::string_view kForm = "a number, with K, M, G or T for powers of 1024";
  constexpr std::string_view kSuffixes = "KMGT";
  std::string_view digits = trim(text);
  double unit = 1;
  if (!digits.empty()) {
    const char last = digits.back();
    const std::size_t power = kSuffixes.find(last >= 'a' && last <= 'z' ? static_cast<char>(last - 'a' + 'A') : last);
    if (power != std::string_view::npos) {
      unit = std::ldexp(1.0, 10 * (static_cast<int>(power) + 1));
      digits.remove_suffix(1);
    }
  }
  long long whole = 0;  // without a fraction all 63 bits count
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
  if (error == std::errc() && end == digits.data() + digits.size() && whole >= 0 &&
      whole <= static_cast<long long>(9.2e18 / unit))
    return whole * static_cast<long long>(unit);
  const auto number = parse_number(digits);
  if (unit == 1 || !number || *number < 0 || *number * unit > 9.2e18)
    fail(Code::invalid_argument, "{} \"{}\": expected {}", what, text, kForm);
  return static_cast<long long>(*number * unit);  // the rest of a byte is dropped
}

}  // namespace hoccl
