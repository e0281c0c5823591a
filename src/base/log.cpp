// The sink of the log: a level and a descriptor for the whole process. Both live in objects that need no destruction,
// so threads may log while the process ends. Read next: the knobs NCCL_DEBUG and NCCL_DEBUG_FILE in
// src/base/config.cpp.
#include "src/base/log.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>

#include "src/base/error.hpp"

namespace hoccl::log {
namespace {

std::atomic<LogLevel> g_level{LogLevel::none};
thread_local int t_rank = -1;

// Guards the sink: a descriptor must not be closed while a line is on its way to it.
std::mutex g_sink_mutex;
int g_sink = STDOUT_FILENO;

std::string host() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  const std::string_view whole(name);
  return std::string(whole.substr(0, whole.find('.')));
}

// %h, %p and %% as NCCL's users know them.
std::string expand(const std::string& pattern) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    switch (pattern[++i]) {
      case 'h':
        out += host();
        break;
      case 'p':
        out += std::to_string(getpid());
        break;
      case '%':
        out += '%';
        break;
      default:
        out += '%', out += pattern[i];
    }
  }
  return out;
}

// The descriptor of standard output or error is not ours to close.
bool owned(int descriptor) { return descriptor > STDERR_FILENO; }

int open_sink(const std::string& pattern) {
  if (pattern.empty() || pattern == "stdout") return STDOUT_FILENO;
  if (pattern == "stderr") return STDERR_FILENO;
  const std::string name = expand(pattern);
  // O_APPEND: several processes may share the file.
  int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file >= 0 && !owned(file)) {  // the program runs without standard streams; stay clear of their numbers
    const int moved = ::fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    ::close(file);
    file = moved;
  }
  require(file >= 0, Code::invalid_argument, "cannot open the log file \"{}\" (knob NCCL_DEBUG_FILE): {}", name,
          errno_text(errno));
  return file;
}

std::string_view label(LogLevel level) {
  constexpr std::array<std::string_view, 5> kLabels{"NONE", "VERSION", "WARN", "INFO", "TRACE"};
  return kLabels[static_cast<std::size_t>(level)];
}

std::string time_text() {
  const time_t now = ::time(nullptr);
  tm parts{};
  localtime_r(&now, &parts);
  char text[32] = {};
  strftime(text, sizeof text, "[%Y-%m-%d %H:%M:%S] ", &parts);
  return text;
}

}  // namespace

void configure(const Config& config) {
  // A process that logs nothing opens nothing.
  const int next = config.debug == LogLevel::none ? STDOUT_FILENO : open_sink(config.debug_file);
  const std::lock_guard lock(g_sink_mutex);
  if (owned(g_sink)) ::close(g_sink);
  g_sink = next;
  // relaxed, partner: the load in enabled(). A line more or less while levels change harms nobody, the sink itself is
  // guarded by the mutex.
  g_level.store(config.debug, std::memory_order_relaxed);
}

bool enabled(LogLevel level) noexcept {
  // relaxed, partner: the store in configure().
  return level != LogLevel::none && level <= g_level.load(std::memory_order_relaxed);
}

void set_rank(int rank) noexcept { t_rank = rank; }

void write(LogLevel level, std::string_view part, std::string_view message) {
  const std::string line = fmt::format(
      "{}{}:{}:{} [{}] HOCCL {} {}: {}\n", level == LogLevel::warn ? time_text() : std::string(), host(), getpid(),
      ::syscall(SYS_gettid), t_rank < 0 ? "-" : std::to_string(t_rank), label(level), part, message);
  const std::lock_guard lock(g_sink_mutex);
  // One write for one line, so that lines of several ranks do not mix. What does not fit is lost: a log must not wait.
  ssize_t written = -1;
  do written = ::write(g_sink, line.data(), line.size());
  while (written < 0 && errno == EINTR);
}

}  // namespace hoccl::log
