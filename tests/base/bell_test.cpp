// Sleeping and waking, and the memory under it, between threads and between processes.
#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/base/bell.hpp"
#include "src/base/error.hpp"
#include "src/base/segment.hpp"

using namespace hoccl;
using namespace std::chrono_literals;

namespace {

bool sleep_on_bell(Bell& bell, std::chrono::microseconds limit) {
  Bell* const bells[] = {&bell};
  return sleep_on(bells, {}, limit);
}

// Runs `body` in a forked process; its exit status, or minus the signal that ended it.
template <class Body>
int in_a_fork(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int open_descriptors() {
  int n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

std::string error_of(auto action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("a ring wakes a sleeper only after the bell was armed") {
  Bell bell;
  bell.ring();
  CHECK_FALSE(sleep_on_bell(bell, 0us));
  bell.arm();
  CHECK_FALSE(sleep_on_bell(bell, 0us));
  bell.ring();
  CHECK(sleep_on_bell(bell, 0us));
  CHECK(sleep_on_bell(bell, 0us));  // until disarmed
  bell.disarm();
  CHECK_FALSE(sleep_on_bell(bell, 0us));
  bell.ring();
  CHECK_FALSE(sleep_on_bell(bell, 0us));
}

TEST_CASE("many rings while a bell is armed write once") {
  Bell bell;
  bell.arm();
  for (int i = 0; i < 100; ++i) bell.ring();
  std::array<char, 100> bytes;
  CHECK(read(bell.fd(), bytes.data(), bytes.size()) == 1);
  bell.disarm();
}

TEST_CASE("a sleep without a ring ends at its limit, and not before") {
  Bell bell;
  bell.arm();
  const auto start = std::chrono::steady_clock::now();
  CHECK_FALSE(sleep_on_bell(bell, 20ms));
  CHECK(std::chrono::steady_clock::now() - start >= 20ms);
  bell.disarm();
}

TEST_CASE("a sleeper is woken by any of several bells and descriptors, and -1 is left out") {
  Bell first, second;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  Bell* const bells[] = {&first, &second};
  const int descriptors[] = {-1, ends[0]};
  first.arm(), second.arm();
  CHECK_FALSE(sleep_on(bells, descriptors, 0us));
  second.ring();
  CHECK(sleep_on(bells, descriptors, 0us));
  second.disarm(), second.arm();
  CHECK_FALSE(sleep_on(bells, descriptors, 0us));
  REQUIRE(write(ends[1], "x", 1) == 1);
  CHECK(sleep_on(bells, descriptors, 0us));
  first.disarm(), second.disarm();
  close(ends[0]), close(ends[1]);
}

TEST_CASE("a bell beyond those that one sleep can watch still ends it") {
  std::vector<int> descriptors;
  int quiet[2], loud[2];
  REQUIRE(pipe(quiet) == 0);
  REQUIRE(pipe(loud) == 0);
  descriptors.assign(300, quiet[0]);
  descriptors.push_back(loud[0]);
  REQUIRE(write(loud[1], "x", 1) == 1);
  const auto start = std::chrono::steady_clock::now();
  (void)sleep_on({}, descriptors, 60s);
  CHECK(std::chrono::steady_clock::now() - start < 30s);
  for (const int fd : {quiet[0], quiet[1], loud[0], loud[1]}) close(fd);
}

TEST_CASE("a remote bell wakes a sleeper in another process") {
  Bell bell;
  const Blob address = bell.address();
  bell.arm();
  CHECK(in_a_fork([&] {
          RemoteBell remote(address);
          remote.ring();
          return 0;
        }) == 0);
  CHECK(sleep_on_bell(bell, 10s));
  bell.disarm();
}

TEST_CASE("ringing the bell of a process that has ended is harmless") {
  int to_parent[2], to_child[2];
  REQUIRE(pipe(to_parent) == 0);
  REQUIRE(pipe(to_child) == 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    Bell bell;
    bell.arm();
    const Blob address = bell.address();
    char go = 0;
    const bool sent = write(to_parent[1], address.data(), address.size()) == static_cast<ssize_t>(address.size());
    _exit(sent && read(to_child[0], &go, 1) == 1 ? 0 : 1);
  }
  Blob address(256);
  const ssize_t n = read(to_parent[0], address.data(), address.size());
  REQUIRE(n > 0);
  address.resize(static_cast<std::size_t>(n));
  RemoteBell remote(address);
  REQUIRE(write(to_child[1], "x", 1) == 1);
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(status == 0);
  remote.ring();  // armed, no reader left: would be SIGPIPE
  CHECK_THAT(error_of([&] { RemoteBell late(address); }), Catch::Contains("process " + std::to_string(child)));
  for (const int fd : {to_parent[0], to_parent[1], to_child[0], to_child[1]}) close(fd);
}

TEST_CASE("no ring is lost between two threads that wake each other") {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kTurns = 3000;
#else
  constexpr int kTurns = 20000;
#endif
  Bell bells[2];
  std::atomic<int> turn{0};
  std::atomic<int> lost{0};
  const auto play = [&](int me) {
    RemoteBell other(bells[1 - me].address());
    for (int t = me; t < kTurns && lost == 0; t += 2) {
      while (turn.load(std::memory_order_acquire) != t) {  // partner: the release below
        bells[me].arm();
        const bool here = turn.load(std::memory_order_acquire) == t;
        if (!here && !sleep_on_bell(bells[me], 10s)) ++lost;
        bells[me].disarm();
        if (lost != 0) return;
      }
      turn.store(t + 1, std::memory_order_release);  // partner: the acquires above
      other.ring();
    }
  };
  std::thread first(play, 0), second(play, 1);
  first.join(), second.join();
  CHECK(lost == 0);
  CHECK(turn == kTurns);
}

TEST_CASE("a segment is zeroed and shared with whoever opens its address") {
  Segment mine(Bytes(10000));
  const auto* bytes = static_cast<const unsigned char*>(mine.data());
  CHECK(std::all_of(bytes, bytes + 10000, [](unsigned char b) { return b == 0; }));
  const Blob address = mine.address();
  CHECK(in_a_fork([&] {
          Segment theirs(address);
          if (theirs.bytes() != Bytes(10000)) return 1;
          std::memset(theirs.data(), 7, 10000);
          return 0;
        }) == 0);
  CHECK(std::all_of(bytes, bytes + 10000, [](unsigned char b) { return b == 7; }));
}

TEST_CASE("an opened segment holds no descriptor") {
  const int before = open_descriptors();
  Segment mine(Bytes(4096));
  CHECK(open_descriptors() == before + 1);
  Segment theirs(mine.address());
  CHECK(open_descriptors() == before + 1);
  mine.close_fd();
  CHECK(open_descriptors() == before);
  std::memset(mine.data(), 3, 4096);
  CHECK(static_cast<const char*>(theirs.data())[4095] == 3);
}

TEST_CASE(
    "a segment whose descriptor was closed, or now is another file, cannot be opened, and the error names the "
    "process") {
  const std::string who = "process " + std::to_string(getpid());
  Segment mine(Bytes(4096));
  const Blob address = mine.address();
  mine.close_fd();
  CHECK_THAT(error_of([&] { Segment late(address); }), Catch::Contains(who) && Catch::Contains("No such file"));
  const Segment other(Bytes(4096));  // takes the number of the closed descriptor
  CHECK_THAT(error_of([&] { Segment late(address); }), Catch::Contains(who) && Catch::Contains("another file"));
}

TEST_CASE("more shared memory than there is is an error at once, before any of it is taken") {
  CHECK_THAT(error_of([] { Segment huge(Bytes(std::int64_t{1} << 50)); }),
             Catch::Contains("1125899906842624 bytes") && Catch::Contains("available"));
}
