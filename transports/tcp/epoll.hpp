// Readiness of many sockets in one system call. Edge-triggered: a target remembers that its socket is ready until an
// attempt says otherwise, so that nobody tries a socket without a reason. Private to the tcp transport.
#pragma once

#include <sys/epoll.h>

#include <cerrno>
#include <cstdint>

#include "src/base/error.hpp"
#include "src/base/socket.hpp"

namespace hoccl::tcp {

class EventTarget {
 public:
  virtual ~EventTarget() = default;
  // `events` of epoll(7). May not destroy any target.
  virtual void on_events(std::uint32_t events) noexcept = 0;
};

class Epoll {
 public:
  Epoll() : fd_(epoll_create1(EPOLL_CLOEXEC)) {
    if (fd_ < 0) fail_errno("creating a descriptor for waiting on sockets (epoll_create1)");
  }
  ~Epoll() { Socket closes(fd_); }
  Epoll(const Epoll&) = delete;
  Epoll& operator=(const Epoll&) = delete;

  int fd() const noexcept { return fd_; }
  // Whatever is ready already is reported again.
  void add(const Socket& socket, EventTarget& target) { control(EPOLL_CTL_ADD, socket, target); }
  // The socket's events go to another target from now on; likewise.
  void hand_over(const Socket& socket, EventTarget& target) { control(EPOLL_CTL_MOD, socket, target); }
  // Needed before closing: a copy of the descriptor in a forked process would keep the registration alive.
  void remove(const Socket& socket) noexcept {
    if (socket.valid()) (void)epoll_ctl(fd_, EPOLL_CTL_DEL, socket.fd(), nullptr);
  }
  // Tells the targets what has happened since; does not wait. True: something has.
  bool dispatch() noexcept {
    epoll_event events[kMost];
    const int n = epoll_wait(fd_, events, kMost, 0);
    for (int i = 0; i < n; ++i) static_cast<EventTarget*>(events[i].data.ptr)->on_events(events[i].events);
    return n > 0;
  }

 private:
  static constexpr int kMost = 64;  // what is left shows at the next call

  void control(int what, const Socket& socket, EventTarget& target) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.ptr = &target;
    if (epoll_ctl(fd_, what, socket.fd(), &event) == 0) return;
    const int error = errno;
    remove(socket);  // its former target may not live on
    errno = error;
    fail_errno("watching a socket (epoll_ctl)");
  }
  int fd_;
};

}  // namespace hoccl::tcp
