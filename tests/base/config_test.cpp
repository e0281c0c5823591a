// The table of knobs: names, aliases, forms and refusals.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "src/base/config.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"

using namespace hoccl;
using namespace std::chrono_literals;

namespace {

// The environment without any knob, but for those set through it; as before when it goes.
class Environment {
 public:
  Environment() {
    for (const KnobRow& row : knob_rows()) {
      std::istringstream names(std::string(row.name) + " " + std::string(row.aliases));
      for (std::string name; names >> name;) hide(name);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : saved_) value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  void set(const std::string& name, const std::string& value) {
    hide(name);
    setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  void hide(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    saved_.insert(saved_.begin(), {name, value ? std::optional<std::string>(value) : std::nullopt});
    unsetenv(name.c_str());
  }
  std::vector<std::pair<std::string, std::optional<std::string>>> saved_;
};

std::string refusal(const std::string& name, const std::string& value) {
  Environment environment;
  environment.set(name, value);
  try {
    read_config();
  } catch (const Error& error) {
    CHECK(error.code() == Code::invalid_argument);
    return error.what();
  }
  return "accepted";
}

Config with(const std::vector<std::pair<std::string, std::string>>& settings) {
  Environment environment;
  for (const auto& [name, value] : settings) environment.set(name, value);
  return read_config();
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("an empty environment gives the defaults") {
  const Config config = with({});
  CHECK(config.schedules == NameFilter{});
  CHECK(config.transports == NameFilter{});
  CHECK(config.host_id.empty());
  CHECK(config.id.empty());
  CHECK(config.start_timeout == 120s);
  CHECK(config.timeout == 1800s);
  CHECK(config.debug == LogLevel::none);
  CHECK(config.debug_file == "stdout");
}

TEST_CASE("a name set to nothing counts as not set") {
  CHECK(with({{"HOCCL_TIMEOUT", ""}, {"HOCCL_SCHEDULE", ""}, {"NCCL_ALGO", "Ring"}}).schedules.names == Names{"ring"});
}

TEST_CASE("a filter is a list of names or all but a list") {
  CHECK(with({{"HOCCL_SCHEDULE", "ho_ring, Ring,ring"}}).schedules == NameFilter{false, {"ho_ring", "ring"}});
  const NameFilter but = with({{"HOCCL_TRANSPORTS", "^shm,tcp"}}).transports;
  CHECK(but == NameFilter{true, {"shm", "tcp"}});
  CHECK_FALSE(but.accepts("shm"));
  CHECK(but.accepts("local"));
  CHECK(NameFilter{false, {"shm"}}.accepts("shm"));
  CHECK_FALSE(NameFilter{false, {"shm"}}.accepts("tcp"));
  CHECK(NameFilter{}.accepts("anything"));
}

TEST_CASE("NCCL's names are understood and ours win over them") {
  CHECK(with({{"NCCL_ALGO", "Tree"}}).schedules.names == Names{"tree"});
  CHECK(with({{"NCCL_ALGO", "Tree"}, {"HOCCL_SCHEDULE", "ring"}}).schedules.names == Names{"ring"});
  CHECK(with({{"NCCL_HOSTID", "a"}}).host_id == "a");
  CHECK(with({{"NCCL_HOSTID", "a"}, {"HOCCL_HOSTID", "b"}}).host_id == "b");
  CHECK(with({{"NCCL_COMM_ID", "10.0.0.1:77"}}).id == "10.0.0.1:77");
  CHECK(with({{"NCCL_DEBUG", "info"}}).debug == LogLevel::info);
  CHECK(with({{"NCCL_DEBUG", "info"}, {"HOCCL_DEBUG", "WARN"}}).debug == LogLevel::warn);
  CHECK(with({{"NCCL_DEBUG", "VERSION"}}).debug == LogLevel::version);
  CHECK(with({{"NCCL_DEBUG_FILE", "f.%h"}}).debug_file == "f.%h");
}

TEST_CASE("NCCL_NET restricts networks and leaves local and shm alone") {
  CHECK(with({{"NCCL_NET", "Socket"}}).transports == NameFilter{false, {"local", "shm", "tcp"}});
  CHECK(with({{"NCCL_NET", "IB"}}).transports == NameFilter{false, {"local", "shm", "verbs"}});
  CHECK(with({{"NCCL_NET", "IB"}, {"HOCCL_TRANSPORTS", "tcp"}}).transports == NameFilter{false, {"tcp"}});
}

TEST_CASE("NCCL's switches forbid a transport, with a network or without") {
  CHECK(with({{"NCCL_SHM_DISABLE", "1"}}).transports == NameFilter{true, {"shm"}});
  CHECK(with({{"NCCL_SHM_DISABLE", "0"}}).transports == NameFilter{});
  CHECK(with({{"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"}}).transports == NameFilter{true, {"shm", "local"}});
  CHECK(with({{"NCCL_NET", "Socket"}, {"NCCL_SHM_DISABLE", "1"}}).transports == NameFilter{false, {"local", "tcp"}});
  CHECK(with({{"NCCL_SHM_DISABLE", "1"}, {"HOCCL_TRANSPORTS", "shm"}}).transports == NameFilter{false, {"shm"}});
}

TEST_CASE("timeouts are seconds, with a fraction when wanted") {
  CHECK(with({{"HOCCL_START_TIMEOUT", "2.5"}}).start_timeout == 2500ms);
  CHECK(with({{"HOCCL_TIMEOUT", "0"}}).timeout == 0ms);
  CHECK(refusal("HOCCL_START_TIMEOUT", "0") == "HOCCL_START_TIMEOUT=\"0\": expected seconds, at least 0.001");
  CHECK(refusal("HOCCL_START_TIMEOUT", "0.0001") == "HOCCL_START_TIMEOUT=\"0.0001\": expected seconds, at least 0.001");
  CHECK(refusal("HOCCL_TIMEOUT", "-1") == "HOCCL_TIMEOUT=\"-1\": expected seconds, 0 for no limit");
  CHECK(refusal("HOCCL_TIMEOUT", "ten") == "HOCCL_TIMEOUT=\"ten\": expected seconds, 0 for no limit");
  CHECK(refusal("HOCCL_TIMEOUT", "1e300") == "HOCCL_TIMEOUT=\"1e300\": expected seconds, 0 for no limit");
  CHECK(refusal("HOCCL_TIMEOUT", "nan") == "HOCCL_TIMEOUT=\"nan\": expected seconds, 0 for no limit");
}

TEST_CASE("a refusal names the knob, its value and the form") {
  CHECK(refusal("NCCL_DEBUG", "LOUD") == "NCCL_DEBUG=\"LOUD\": expected VERSION, WARN, INFO or TRACE");
  CHECK(refusal("HOCCL_SCHEDULE", "ring,,tree") == "HOCCL_SCHEDULE=\"ring,,tree\": expected names as a,b or ^a,b");
  CHECK(refusal("HOCCL_TRANSPORTS", "^") == "HOCCL_TRANSPORTS=\"^\": expected names as a,b or ^a,b");
  CHECK(refusal("HOCCL_TRANSPORTS", "a,^b") == "HOCCL_TRANSPORTS=\"a,^b\": expected names as a,b or ^a,b");
  CHECK(refusal("NCCL_SHM_DISABLE", "yes") == "NCCL_SHM_DISABLE=\"yes\": expected 0 or 1");
}

TEST_CASE("agreed knobs are compared as text and local ones are left out") {
  CHECK(agreed_text(with({{"HOCCL_SCHEDULE", "^tree"}, {"NCCL_NET", "Socket"}, {"HOCCL_HOSTID", "x"}})) ==
        "HOCCL_SCHEDULE=^tree\nHOCCL_TRANSPORTS=local,shm,tcp\n");
  CHECK(agreed_text(with({})) == "HOCCL_SCHEDULE=\nHOCCL_TRANSPORTS=\n");
}

TEST_CASE("an unknown name with our prefix is told with the nearest known one") {
  Environment environment;
  const std::vector<std::string> before = unknown_knobs();
  environment.set("HOCCL_SHEDULE", "ring");
  environment.set("HOCCL_TEST_ANYTHING", "1");
  environment.set("HOCCL_TIMEOUT", "5");
  std::vector<std::string> added;
  for (const std::string& line : unknown_knobs())
    if (std::find(before.begin(), before.end(), line) == before.end()) added.push_back(line);
  CHECK(added == Names{"HOCCL_SHEDULE is no knob of this library and is ignored; did you mean HOCCL_SCHEDULE?"});
}

TEST_CASE("every row of the table says what it is") {
  for (const KnobRow& row : knob_rows()) {
    INFO(row.name);
    CHECK((row.name.starts_with("HOCCL_") || row.name.starts_with("NCCL_")));
    CHECK_FALSE(row.form.empty());
    CHECK_FALSE(row.help.empty());
  }
}

TEST_CASE("a log line has NCCL's shape and only enabled levels are written") {
  char name[] = "/tmp/hoccl_log_test_XXXXXX";
  const int file = mkstemp(name);
  REQUIRE(file >= 0);
  Config config;
  config.debug = LogLevel::info;
  config.debug_file = name;
  log::configure(config);
  CHECK(log::enabled(LogLevel::warn));
  CHECK(log::enabled(LogLevel::info));
  CHECK_FALSE(log::enabled(LogLevel::trace));
  log::set_rank(3);
  log::info("wiring", "{} links", 7);
  log::trace("wiring", "not shown");
  log::set_rank(-1);
  log::warn("config", "odd");
  log::configure(Config{});
  CHECK_FALSE(log::enabled(LogLevel::version));
  log::warn("config", "not shown");

  std::ifstream in(name);
  std::string first, second, third;
  std::getline(in, first);
  std::getline(in, second);
  CHECK(first.find(":" + std::to_string(getpid()) + ":") != std::string::npos);
  CHECK(first.substr(first.find(" [")) == " [3] HOCCL INFO wiring: 7 links");
  CHECK(second.substr(second.find(" [-]")) == " [-] HOCCL WARN config: odd");
  CHECK(second.front() == '[');  // the time
  CHECK_FALSE(std::getline(in, third));
  close(file);
  unlink(name);
}

TEST_CASE("a log file that cannot be opened is an error that names it") {
  Config config;
  config.debug = LogLevel::warn;
  config.debug_file = "/nonexistent/log";
  CHECK_THROWS_WITH(log::configure(config),
                    "cannot open the log file \"/nonexistent/log\" (knob NCCL_DEBUG_FILE): No such file or directory "
                    "(errno 2)");
}
