// The one exception of the library and the ways to throw it. An Error ends an operation; expected answers
// ("no room now", "not reachable") are values, never errors. src/api/guard.hpp alone turns an Error into a
// result code. Floor 0: may be included from anywhere.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace hoccl {

// Numbers are those of ncclResult_t, so that the edge needs no table.
enum class Code : int {
  success = 0,
  unhandled_cuda = 1,
  system = 2,
  internal = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote = 6,
  in_progress = 7,
};

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

template <class... Args>
[[noreturn]] void fail(Code code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

// Throws Error{code} with the text when `condition` does not hold.
template <class... Args>
void require(bool condition, Code code, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) [[unlikely]]
    throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

// "No such file or directory (errno 2)".
std::string errno_text(int error);

// Throws Error{system}: what was tried, and errno in words.
[[noreturn]] void fail_errno(const std::string& tried);

}  // namespace hoccl
