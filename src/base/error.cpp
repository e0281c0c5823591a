#include "src/base/error.hpp"

#include <cerrno>
#include <system_error>

namespace hoccl {

std::string errno_text(int error) {
  return fmt::format("{} (errno {})", std::generic_category().message(error), error);
}

void fail_errno(const std::string& tried) {
  const int error = errno;
  throw Error(Code::system, fmt::format("{}: {}", tried, errno_text(error)));
}

}  // namespace hoccl
