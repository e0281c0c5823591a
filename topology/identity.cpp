// Who this process is to others, read from the kernel: nothing is asked of the network. Read next: topology/groups.hpp,
// which gathers ranks by host_identity().
#include "topology/identity.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "src/base/error.hpp"

namespace hoccl {
namespace {

// "device:inode" of a file, which names a namespace or a mount exactly; empty when there is none.
std::string file_identity(const char* path) {
  struct stat about {};
  if (::stat(path, &about) != 0) return {};
  return fmt::format("{}:{}", about.st_dev, about.st_ino);
}

}  // namespace

std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) boot = host_name();  // a kernel without it: the host's name is the next best
  return fmt::format("boot {} pid {} user {}", boot, file_identity("/proc/self/ns/pid"), ::geteuid());
}

std::string host_identity(const std::string& override_id) {
  if (!override_id.empty()) return override_id;
  struct stat memory {};
  if (::stat("/dev/shm", &memory) != 0) return machine_identity();
  return fmt::format("{} shm {}", machine_identity(), memory.st_dev);
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

}  // namespace hoccl
