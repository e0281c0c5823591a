// Anonymous shared memory over memfd_create(2). An address is (process, descriptor, size, inode); the inode makes a
// process number that was used again harmless: another process's file is never taken for ours. Users of it: bell.cpp,
// transports/shm.
#include "src/base/segment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

#include "src/base/error.hpp"

namespace hoccl {
namespace {

struct SegmentAddress {
  std::int32_t pid, fd;
  std::int64_t bytes;
  std::uint64_t device, inode;
};

void* map(int fd, Bytes bytes) {
  void* const at = mmap(nullptr, size_of(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : at;
}

// Bytes that can be had without harm to anybody, or a number beyond all when the kernel does not say.
std::int64_t available_memory() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    long long kibibytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %lld", &kibibytes) == 1) return kibibytes * 1024;
  }
  return std::numeric_limits<std::int64_t>::max();
}

// fallocate(2) on a memfd knows no limit: it would take the last page and wake the out-of-memory killer. So large
// requests are compared with what is there; small ones are not worth the reading.
void require_memory(Bytes bytes) {
  constexpr std::int64_t kLarge = std::int64_t{16} << 20;
  if (bytes.value < kLarge) return;
  const std::int64_t available = available_memory();
  require(
      bytes.value <= available, Code::system,
      "reserving {} bytes of shared memory: only {} bytes are available; use fewer ranks on this machine, or smaller "
      "messages",
      bytes.value, available);
}

// Closes the descriptor first, keeping errno for the text.
[[noreturn]] void close_and_fail(int fd, const std::string& tried) {
  const int error = errno;
  close(fd);
  errno = error;
  fail_errno(tried);
}

}  // namespace

int open_fd_of(int pid, int fd, int flags) noexcept {
  char path[64];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/{}/fd/{}", pid, fd).out = '\0';
  int opened = -1;
  do opened = open(path, flags | O_CLOEXEC);
  while (opened < 0 && errno == EINTR);
  return opened;
}

Segment::Segment(Bytes bytes) : bytes_(bytes) {
  require(bytes.value > 0, Code::internal, "shared memory of {} bytes was asked for", bytes.value);
  require_memory(bytes);
  fd_ = memfd_create("hoccl", MFD_CLOEXEC);
  if (fd_ < 0) fail_errno(fmt::format("creating {} bytes of shared memory (memfd_create)", bytes.value));
  if (ftruncate(fd_, bytes.value) != 0)
    close_and_fail(fd_, fmt::format("sizing shared memory to {} bytes (ftruncate)", bytes.value));
  // Takes the pages without clearing or mapping them: the cost of touching a page is paid at its first use.
  int reserved = -1;
  do reserved = fallocate(fd_, 0, 0, bytes.value);
  while (reserved != 0 && errno == EINTR);
  if (reserved != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
    close_and_fail(fd_, fmt::format("reserving {} bytes of shared memory (fallocate)", bytes.value));
  data_ = map(fd_, bytes);
  if (data_ == nullptr) close_and_fail(fd_, fmt::format("mapping {} bytes of shared memory (mmap)", bytes.value));
}

Segment::Segment(std::span<const std::byte> address) {
  const auto a = Reader(address).get<SegmentAddress>();
  bytes_ = Bytes(a.bytes);
  const int fd = open_fd_of(a.pid, a.fd, O_RDWR);
  if (fd < 0)
    fail_errno(
        fmt::format("opening shared memory of process {} (/proc/{}/fd/{}; it must live, be of the same user "
                    "and of the same pid namespace)",
                    a.pid, a.pid, a.fd));
  struct stat status {};
  if (fstat(fd, &status) != 0) close_and_fail(fd, fmt::format("looking at shared memory of process {} (fstat)", a.pid));
  if (status.st_dev != a.device || status.st_ino != a.inode || status.st_size != a.bytes) {
    close(fd);
    fail(Code::system,
         "opening shared memory of process {}: its descriptor {} is another file now; the process that made "
         "it has closed it or is gone",
         a.pid, a.fd);
  }
  data_ = map(fd, bytes_);
  if (data_ == nullptr)
    close_and_fail(fd, fmt::format("mapping {} bytes of shared memory of process {} (mmap)", a.bytes, a.pid));
  close(fd);  // the mapping keeps the memory
}

Segment::~Segment() {
  munmap(data_, size_of(bytes_));
  close_fd();
}

Blob Segment::address() const {
  require(fd_ >= 0, Code::internal, "the address of shared memory was asked for after its descriptor was closed");
  struct stat status {};
  if (fstat(fd_, &status) != 0) fail_errno("looking at shared memory of this process (fstat)");
  return Writer().put(SegmentAddress{getpid(), fd_, bytes_.value, status.st_dev, status.st_ino}).take();
}

void Segment::close_fd() noexcept {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace hoccl
