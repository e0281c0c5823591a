// Anonymous shared memory: a memfd, mapped. Nothing has a name in the file system, so nothing is left behind by a kill.
// Peers of the same user and pid namespace open it through /proc/<pid>/fd.
#pragma once

#include <cstddef>
#include <span>

#include "src/base/bytes.hpp"
#include "src/base/types.hpp"

namespace hoccl {

class Segment {
 public:
  // New zeroed memory, reserved at once: lack of memory is an Error{system} here, never a SIGBUS later (as far as the
  // kernel tells: a container's own limit ends the process).
  explicit Segment(Bytes bytes);
  // Somebody's segment, by its address(). Throws Error{system} naming the process when it cannot be opened.
  explicit Segment(std::span<const std::byte> address);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  void* data() const noexcept { return data_; }
  Bytes bytes() const noexcept { return bytes_; }
  // Valid until close_fd() or destruction.
  Blob address() const;
  // The mapping stays; peers can no longer open it. Saves a descriptor once all peers have it.
  void close_fd() noexcept;

 private:
  void* data_ = nullptr;
  Bytes bytes_{0};
  int fd_ = -1;
};

// Opens descriptor `fd` of process `pid` (of this user and pid namespace) anew with open(2) flags. -1 and errno on
// failure.
int open_fd_of(int pid, int fd, int flags) noexcept;

}  // namespace hoccl
