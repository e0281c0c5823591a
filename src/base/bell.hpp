// How a waiting rank sleeps and how its peers wake it. A Bell lives in a shared page, so that peers in other processes
// of the machine can ring it; it costs them a fence and a load while its owner is awake, one write to a pipe
// when the owner sleeps. One owner per communicator; the owner's thread may change, but only one sleeps at a time.
//
// Protocol (Dekker): the owner stores asleep=1, fences, looks at all its work once more, then polls the pipe and its
// descriptors. A ringer makes its news visible, fences, and looks at asleep. Either the owner sees the news or the
// ringer sees asleep=1; both seq_cst fences are partners of each other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "src/base/bytes.hpp"
#include "src/base/segment.hpp"

namespace hoccl {

class Bell {
 public:
  // Throws Error{system} when descriptors or memory run out.
  Bell();
  ~Bell();
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  // Wakes the owner if it sleeps. Any thread of this process; async-signal-safe.
  void ring() noexcept;

  // First half of going to sleep: from here on peers ring. Look at all work once more after it.
  void arm() noexcept;
  // Second half: undoes arm() and swallows what was rung.
  void disarm() noexcept;
  // Readable when somebody rang.
  int fd() const noexcept { return read_fd_; }

  // What a peer on the same machine needs to open a RemoteBell.
  Blob address() const;

 private:
  friend class RemoteBell;
  struct Page {
    std::atomic<std::uint32_t> asleep;
  };
  Segment segment_;
  int read_fd_ = -1, write_fd_ = -1;
  Page* page() const noexcept { return static_cast<Page*>(segment_.data()); }
};

// Another process's (or another communicator's) bell.
class RemoteBell {
 public:
  // Throws Error{system} when the owner's process is gone or not ours to reach.
  explicit RemoteBell(std::span<const std::byte> address);
  ~RemoteBell();
  RemoteBell(const RemoteBell&) = delete;
  RemoteBell& operator=(const RemoteBell&) = delete;
  void ring() noexcept;

 private:
  Segment segment_;
  int write_fd_ = -1;
};

// Waits until one of the bells or descriptors is ready, or the time is over. True: something is ready. The bells must
// be armed. Descriptors of -1 are left out.
bool sleep_on(std::span<Bell* const> bells, std::span<const int> descriptors, std::chrono::microseconds limit) noexcept;

}  // namespace hoccl
