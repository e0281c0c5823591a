// The bell: a shared word that says whether the owner sleeps, and a pipe that wakes it. The protocol is in bell.hpp;
// sleep_on() is the only place of the library where a rank sleeps. Read next: src/comm/wait.cpp.
#include "src/base/bell.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "src/base/error.hpp"

namespace hoccl {
namespace {

// What a RemoteBell needs beside the page: the pipe of the owner. The inode proves that it is still the same pipe.
struct PipeAddress {
  std::int32_t pid, fd;
  std::uint64_t device, inode;
};

// The fence of both halves of the Dekker protocol; its partner is the other half's. A fence and not a locked operation
// on the word itself, so that the word's cache line stays shared among the ringers while the owner is awake. The
// data that a message carries is not ordered by it, but by the release and acquire of the transport's own flags; hence
// ThreadSanitizer, which does not model fences, misses nothing and invents nothing here.
#if defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
inline void full_fence() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }
#if defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic pop
#endif

// A ringer that dies between the exchange and the write leaves the owner asleep until its time limit; the news that its
// process ended comes by another way then.
void ring_page(std::atomic<std::uint32_t>& asleep, int write_fd) noexcept {
  full_fence();  // partner: the fence in arm()
  // relaxed: ordered by the fence; the exchange only elects the one ringer who writes.
  if (asleep.load(std::memory_order_relaxed) == 0 || asleep.exchange(0, std::memory_order_relaxed) == 0) return;
  const int saved = errno;  // a signal handler may ring
  const char one = 1;
  ssize_t written = -1;
  do written = write(write_fd, &one, 1);
  while (written < 0 && errno == EINTR);
  // EAGAIN: the pipe is full, so it is readable, and that is all a ring wants.
  errno = saved;
}

}  // namespace

Bell::Bell() : segment_(Bytes(static_cast<std::int64_t>(sizeof(Page)))) {
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "the word is shared between processes");
  new (segment_.data()) Page{};
  int ends[2];
  if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) fail_errno("creating the pipe that wakes a waiting rank (pipe2)");
  read_fd_ = ends[0], write_fd_ = ends[1];
}

Bell::~Bell() {
  close(read_fd_);
  close(write_fd_);
}

void Bell::ring() noexcept { ring_page(page()->asleep, write_fd_); }

void Bell::arm() noexcept {
  page()->asleep.store(1, std::memory_order_relaxed);  // relaxed: ordered by the fence
  full_fence();                                        // partner: the fence in ring_page()
}

void Bell::disarm() noexcept {
  page()->asleep.store(0, std::memory_order_relaxed);  // relaxed: a late ringer costs one wake-up for nothing
  std::array<char, 64> swallowed;
  while (read(read_fd_, swallowed.data(), swallowed.size()) == static_cast<ssize_t>(swallowed.size())) {
  }
}

Blob Bell::address() const {
  struct stat status {};
  if (fstat(write_fd_, &status) != 0) fail_errno("looking at the pipe that wakes a waiting rank (fstat)");
  return Writer()
      .put_bytes(segment_.address())
      .put(PipeAddress{getpid(), write_fd_, status.st_dev, status.st_ino})
      .take();
}

namespace {

// Opened for reading too: with a reader of our own a write after the owner's death gives no SIGPIPE.
int open_pipe(const PipeAddress& a) {
  const int fd = open_fd_of(a.pid, a.fd, O_RDWR | O_NONBLOCK);
  if (fd < 0)
    fail_errno(
        fmt::format("opening the pipe that wakes process {} (/proc/{}/fd/{}; it must live, be of the same user "
                    "and of the same pid namespace)",
                    a.pid, a.pid, a.fd));
  struct stat status {};
  if (fstat(fd, &status) == 0 && status.st_dev == a.device && status.st_ino == a.inode) return fd;
  close(fd);
  fail(Code::system, "opening the pipe that wakes process {}: its descriptor {} is another file now; it is gone", a.pid,
       a.fd);
}

}  // namespace

RemoteBell::RemoteBell(std::span<const std::byte> address) : segment_(Reader(address).get_bytes()) {
  Reader reader(address);
  reader.get_bytes();
  write_fd_ = open_pipe(reader.get<PipeAddress>());
}

RemoteBell::~RemoteBell() { close(write_fd_); }

void RemoteBell::ring() noexcept { ring_page(*static_cast<std::atomic<std::uint32_t>*>(segment_.data()), write_fd_); }

bool sleep_on(std::span<Bell* const> bells, std::span<const int> descriptors,
              std::chrono::microseconds limit) noexcept {
  // Room without allocating. Whoever waits for more looks at the rest every millisecond.
  std::array<pollfd, 256> watched;
  std::size_t n = 0;
  bool all = true;
  const auto watch = [&](int fd) {
    if (fd < 0) return;
    if (n < watched.size())
      watched[n++] = pollfd{fd, POLLIN, 0};
    else
      all = false;
  };
  for (Bell* const bell : bells) watch(bell->fd());
  for (const int fd : descriptors) watch(fd);

  constexpr std::int64_t kMillion = 1'000'000;
  std::int64_t us = std::max<std::int64_t>(limit.count(), 0);
  if (!all) us = std::min<std::int64_t>(us, 1000);
  const timespec time{static_cast<time_t>(us / kMillion), static_cast<long>(us % kMillion * 1000)};
  return ppoll(watched.data(), n, &time, nullptr) > 0;
}

}  // namespace hoccl
