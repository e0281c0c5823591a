// Two ranks with a link in each direction, as threads of one process or as two processes, for the transport contract.
// What a rank does is a function of its Side; it reports with expect(), which throws, so that it may run in a forked
// process.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "src/base/bell.hpp"
#include "src/base/error.hpp"
#include "transports/transport.hpp"

namespace hoccl::test {

using Clock = std::chrono::steady_clock;
// Nothing here takes that long unless it is stuck.
constexpr std::chrono::seconds kDeadline{30};

template <class... Args>
void expect(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) throw std::runtime_error(fmt::format(text, std::forward<Args>(args)...));
}

enum class As { threads, processes };

struct Case {
  std::string transport;
  As as = As::threads;
  LinkSpec spec;

  std::string text() const {
    return fmt::format("{}, {}, slots of {} bytes, {} credits, width {}", transport,
                       as == As::threads ? "threads" : "processes", spec.slot.value, spec.credits, spec.width);
  }
};

inline const TransportRow& transport_row(const std::string& name) {
  for (const TransportRow& r : all_transports())
    if (r.name == name) return r;
  throw std::runtime_error("no transport " + name);
}

// The slow, reliable way for the two to talk: one end of a stream socket.
class Wire {
 public:
  explicit Wire(int fd) : fd_(fd) {}
  ~Wire() { close(fd_); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  Blob swap(const Blob& mine) {
    const auto size = static_cast<std::uint32_t>(mine.size());
    put(&size, sizeof size);
    put(mine.data(), mine.size());
    std::uint32_t theirs = 0;
    get(&theirs, sizeof theirs);
    Blob blob(theirs);
    get(blob.data(), theirs);
    return blob;
  }
  void barrier() { swap({}); }
  // The other rank has come to its next swap().
  bool waits() {
    pollfd ready{fd_, POLLIN, 0};
    return poll(&ready, 1, 0) == 1;
  }

 private:
  void put(const void* from, std::size_t n) {
    if (n > 0) expect(send(fd_, from, n, MSG_NOSIGNAL) == static_cast<ssize_t>(n), "the other rank is gone");
  }
  void get(void* to, std::size_t n) {
    auto* at = static_cast<char*>(to);
    while (n > 0) {
      pollfd ready{fd_, POLLIN, 0};
      const int limit = static_cast<int>(std::chrono::milliseconds(kDeadline).count());
      expect(poll(&ready, 1, limit) == 1, "the other rank does not answer");
      const ssize_t got = recv(fd_, at, n, 0);
      expect(got > 0, "the other rank is gone");
      at += got, n -= static_cast<std::size_t>(got);
    }
  }
  int fd_;
};

// One rank. Links are destroyed before the transport, that before the bell.
struct Side {
  Side(int number, int fd, const Case& what) : rank(number), spec(what.spec), wire(fd) {
    spec.peer = Rank(1 - rank);
    const TransportContext context{&bell, "host", "machine"};
    transport = transport_row(what.transport).make(context);
    theirs = wire.swap(transport->profile());
  }

  // A link in each direction; both ends have met when it returns.
  void wire_up() {
    out = transport->open_send(spec, theirs);
    in = transport->open_receive(spec, theirs);
    const Blob for_in = wire.swap(out->hello()), for_out = wire.swap(in->hello());
    bool out_met = false, in_met = false;
    const auto limit = Clock::now() + kDeadline;
    while (!(out_met && in_met)) {
      if (!out_met) out_met = out->meet(for_out);
      if (!in_met) in_met = in->meet(for_in);
      expect(Clock::now() < limit, "the two ends did not meet");
      std::this_thread::yield();
    }
    wire.barrier();
  }

  // Does `attempt` until it answers true, sleeping while it answers false; a sleep that nobody ends is a lost wake-up.
  template <class Attempt>
  void until(Attempt attempt) {
    const auto limit = Clock::now() + kDeadline;
    while (!attempt()) {
      expect(!out->failed() && !in->failed(), "a link failed: {}{}", out->failure(), in->failure());
      if (transport->poll()) continue;
      bell.arm();
      transport->poll();
      const bool done = attempt();
      Bell* const bells[] = {&bell};
      const int descriptors[] = {transport->wait_fd()};
      const bool woken = done || sleep_on(bells, descriptors, std::chrono::seconds(10));
      bell.disarm();
      if (done) return;
      expect(woken && Clock::now() < limit, "nobody woke rank {}", rank);
    }
  }

  const int rank;
  LinkSpec spec;
  Wire wire;
  Bell bell;
  std::unique_ptr<Transport> transport;
  Blob theirs;
  std::unique_ptr<SendLink> out;
  std::unique_ptr<ReceiveLink> in;
};

using Body = std::function<void(Side&)>;

inline std::string run_side(int rank, int fd, const Case& what, const Body& body) {
  try {
    Side side(rank, fd, what);
    body(side);
    return {};
  } catch (const std::exception& error) {
    return fmt::format("rank {}: {}\n", rank, error.what());
  }
}

// Waits for the child until the deadline, then ends it. Its wait status.
inline int reap(pid_t child) {
  const auto limit = Clock::now() + 2 * kDeadline;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > limit) kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return status;
}

// Runs `body` as rank 0 and as rank 1. Empty, or what went wrong. `child_status` (processes): how rank 1 should end.
inline std::string two_ranks(const Case& what, const Body& body, int child_status = 0) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return "no socketpair";
  if (what.as == As::threads) {
    std::string first, second;
    std::thread a([&] { first = run_side(0, fds[0], what, body); });
    std::thread b([&] { second = run_side(1, fds[1], what, body); });
    a.join(), b.join();
    return first + second;
  }
  const pid_t child = fork();
  if (child == 0) {
    close(fds[0]);
    const std::string wrong = run_side(1, fds[1], what, body);
    if (!wrong.empty()) (void)!write(STDERR_FILENO, wrong.data(), wrong.size());
    _exit(wrong.empty() ? 0 : 1);
  }
  close(fds[1]);
  std::string wrong = run_side(0, fds[0], what, body);
  const int status = reap(child);
  if (status != child_status) wrong += fmt::format("rank 1 ended with status {:#x}, not {:#x}\n", status, child_status);
  return wrong;
}

}  // namespace hoccl::test
