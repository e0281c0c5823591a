// Log lines of four levels in NCCL's shape, `host:pid:tid [rank] HOCCL INFO part: message`. Silent by default.
// The sink is one of the two process-wide states of the library (the other is the open group of a thread).
// Any thread may log. Floor 0.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "src/base/config.hpp"

namespace hoccl::log {

// Sets level and sink from the knobs; later calls change them for all communicators of the process.
void configure(const Config& config);

bool enabled(LogLevel level) noexcept;

// Names the rank that the calling thread works for, -1 for none; shown in each line.
void set_rank(int rank) noexcept;

void write(LogLevel level, std::string_view part, std::string_view message);

// Said from NCCL_DEBUG=VERSION on.
template <class... Args>
void version(fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(LogLevel::version)) write(LogLevel::version, "library", fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void warn(std::string_view part, fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(LogLevel::warn)) write(LogLevel::warn, part, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void info(std::string_view part, fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(LogLevel::info)) write(LogLevel::info, part, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void trace(std::string_view part, fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(LogLevel::trace)) write(LogLevel::trace, part, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace hoccl::log
