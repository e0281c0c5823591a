// Unique ids, and the meeting of ranks among strangers, latecomers and liars.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/socket.hpp"
#include "src/bootstrap/bootstrap.hpp"
#include "src/bootstrap/calls.hpp"
#include "src/bootstrap/handshake.hpp"
#include "src/bootstrap/unique_id.hpp"

using namespace hoccl;
using namespace std::chrono_literals;

namespace {

std::string text_of(const UniqueId& id) { return std::string(id.data(), strnlen(id.data(), id.size())); }

UniqueId id_of(const std::string& text) {
  UniqueId id{};
  std::copy_n(text.begin(), std::min(text.size(), id.size()), id.begin());
  return id;
}

struct Outcome {
  std::unique_ptr<Bootstrap> bootstrap;
  std::string error;
  Code code = Code::success;
};

Outcome try_to_join(const UniqueId& id, int rank, int size, std::chrono::milliseconds deadline) {
  Outcome outcome;
  try {
    outcome.bootstrap = join_tcp(id, Rank(rank), size, deadline);
  } catch (const Error& error) {
    outcome.error = error.what();
    outcome.code = error.code();
  }
  return outcome;
}

struct Claim {
  int rank, size;
};

// All join at once, each in a thread of its own.
std::vector<Outcome> join_all(const UniqueId& id, const std::vector<Claim>& claims,
                              std::chrono::milliseconds deadline) {
  std::vector<Outcome> outcomes(claims.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < claims.size(); ++i)
    threads.emplace_back([&, i] { outcomes[i] = try_to_join(id, claims[i].rank, claims[i].size, deadline); });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::vector<Claim> everybody(int size) {
  std::vector<Claim> claims;
  for (int rank = 0; rank < size; ++rank) claims.push_back({rank, size});
  return claims;
}

// They have met: an exchange works.
void check_met(std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) CHECK(outcome.error == "");
  if (std::any_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return !o.bootstrap; })) return;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (Outcome& outcome : outcomes)
    threads.emplace_back([&] {
      const int me = index(outcome.bootstrap->rank());
      const auto all = outcome.bootstrap->exchange(std::as_bytes(std::span(&me, 1)));
      for (int rank = 0; rank < outcome.bootstrap->size(); ++rank)
        if (Reader(all[static_cast<std::size_t>(rank)]).get<int>() != rank) ++wrong;
      outcome.bootstrap->leave();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

Address loopback_of(const UniqueId& id) { return *Address::parse(parse_id(id).addresses.back()); }

Socket knock(const Address& address) {
  Socket socket = Socket::start_connect(address);
  int error = 0;
  for (int i = 0; i < 1000 && !socket.finish_connect(error); ++i) poll(nullptr, 0, 1);
  REQUIRE(error == 0);
  return socket;
}

void say(Socket& socket, std::string_view words) {
  socket.write_some(std::as_bytes(std::span(words.data(), words.size())));
}

// A port of the loopback address that is kept for us but at which nobody listens, as a launcher does it.
struct KeptPort {
  KeptPort() {
    const int on = 1;
    fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage storage;
    const socklen_t length = Address::loopback(AF_INET, 0).store(&storage);
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&storage), length) == 0);
  }
  ~KeptPort() { ::close(fd); }
  std::string text() const {
    sockaddr_storage storage;
    socklen_t length = sizeof storage;
    getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length);
    return Address::from(&storage).text();
  }
  int fd = -1;
};

}  // namespace

TEST_CASE("a unique id is printable text padded with zeros, with this host's addresses and loopback last") {
  const UniqueId id = make_unique_id("", 0);
  const std::string text = text_of(id);
  CHECK(text.starts_with("hoccl1 "));
  CHECK(text.size() < id.size());
  CHECK(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 127; }));
  CHECK(std::all_of(id.begin() + static_cast<std::ptrdiff_t>(text.size()), id.end(), [](char c) { return c == '\0'; }));
  const IdParts parts = parse_id(id);
  CHECK_FALSE(parts.at_rank_0);
  CHECK(parts.place == network_place());
  CHECK(loopback_of(id).is_loopback());
  CHECK(print_id(parts) == id);
  CHECK(text_of(make_unique_id("", 0)) != text);
  // Both ids are given up here; their listeners stay until this process ends.
}

TEST_CASE("addresses that do not fit into an id are left out, the last never") {
  IdParts parts{0x0123456789abcdef, false, 0xfeedbeef, {}};
  for (int i = 0; i < 9; ++i) parts.addresses.push_back(fmt::format("192.168.100.{}:65535", 200 + i));
  parts.addresses.push_back("127.0.0.1:65535");
  const std::string text = text_of(print_id(parts));
  CHECK(text ==
        "hoccl1 0123456789abcdef feedbeef 192.168.100.200:65535 192.168.100.201:65535 192.168.100.202:65535 "
        "127.0.0.1:65535");
  CHECK(parse_id(id_of(text)).addresses.size() == 4);
  CHECK_THROWS_WITH(print_id({1, true, 0, {std::string(100, 'h') + ":1"}}),
                    Catch::Contains("too long for a unique id"));
}

TEST_CASE("where ranks share a network the loopback address is tried first, elsewhere last") {
  const Address far = *Address::parse("10.1.2.3:9"), near = *Address::parse("127.0.0.1:9");
  CHECK(in_order_of_trial({network_place(), {far, near}}) == std::vector<Address>{near, far});
  CHECK(in_order_of_trial({network_place() + 1, {near, far}}) == std::vector<Address>{far, near});
}

TEST_CASE("a malformed id is refused with the reason") {
  const auto refusal = [](const std::string& text) {
    const Outcome outcome = try_to_join(id_of(text), 0, 2, 5000ms);
    CHECK(outcome.code == Code::invalid_argument);
    return outcome.error;
  };
  using Catch::Contains;
  CHECK_THAT(refusal(""), Contains("does not begin with \"hoccl1\""));
  CHECK_THAT(refusal("nonsense"), Contains("\"nonsense\"") && Contains("does not begin with \"hoccl1\""));
  CHECK_THAT(refusal("hoccl1 12 feedbeef 127.0.0.1:1"), Contains("\"12\" is not 16 hexadecimal digits"));
  CHECK_THAT(refusal("hoccl1 0123456789abcdef x 127.0.0.1:1"), Contains("\"x\" is not 8 hexadecimal digits"));
  CHECK_THAT(refusal("hoccl1 0123456789abcdef feedbeef"), Contains("names no address"));
  CHECK_THAT(refusal("hoccl1 0123456789abcdef feedbeef host:1"), Contains("\"host:1\" is no address"));
  CHECK_THAT(refusal("hoccl1 \x01"), Contains("not 128 bytes of printable text"));
  CHECK_THAT(refusal(std::string(128, 'h')), Contains("not 128 bytes of printable text"));
  CHECK_THAT(refusal(std::string("hoccl1\0x", 8)), Contains("not 128 bytes of printable text"));
  CHECK_THROWS_WITH(make_unique_id("nonsense", 0), Contains("HOCCL_ID=\"nonsense\": expected host:port"));
  CHECK_THROWS_WITH(make_unique_id("hoccl1 12", 0), Contains("is not 16 hexadecimal digits"));
  const UniqueId id = id_of("hoccl1 0123456789abcdef feedbeef 127.0.0.1:1");
  CHECK(try_to_join(id, 2, 2, 1000ms).error == "rank 2 of a communicator of 2 ranks");
  CHECK(try_to_join(id, -1, 2, 1000ms).error == "rank -1 of a communicator of 2 ranks");
  CHECK(try_to_join(id, 0, 0, 1000ms).error == "a communicator of 0 ranks");
}

TEST_CASE("64 ranks meet") {
  auto outcomes = join_all(make_unique_id("", 0), everybody(64), 30000ms);
  check_met(outcomes);
}

TEST_CASE("one rank alone meets itself") {
  auto outcomes = join_all(make_unique_id("", 0), everybody(1), 10000ms);
  check_met(outcomes);
  auto fixed = join_all(make_unique_id("127.0.0.1:1", 0), everybody(1), 10000ms);
  check_met(fixed);
}

TEST_CASE("the process that made the id need not be a rank, and ranks are processes") {
  const UniqueId id = make_unique_id("", 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(30);
      int status = 1;
      try {
        auto bootstrap = join_tcp(id, Rank(rank), 3, 20000ms);
        bootstrap->barrier();
        bootstrap->leave();
        status = 0;
      } catch (const std::exception&) {
      }
      _exit(status);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

TEST_CASE("strangers at the door disturb nobody and are not kept") {
  const UniqueId id = make_unique_id("", 0);
  const Address door = loopback_of(id);
  std::minstd_rand random(3);
  std::vector<Socket> strangers;
  for (int i = 0; i < 100; ++i) {
    Socket socket = knock(door);
    switch (i % 5) {
      case 0:
        continue;  // closes at once
      case 1:
        break;  // says nothing
      case 2:
        say(socket, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        break;
      case 3:
        say(socket, "1234567");
        break;
      default: {
        std::string noise(200, ' ');
        for (char& c : noise) c = static_cast<char>(random());
        say(socket, noise);
      }
    }
    strangers.push_back(std::move(socket));
  }
  {  // one who knows the words, but not the secret
    Socket socket = knock(door);
    post(socket, Kind::hello, 12345, {});
    strangers.push_back(std::move(socket));
  }
  auto outcomes = join_all(id, everybody(4), 20000ms);
  check_met(outcomes);
  // The meeting is over: every stranger's connection ends.
  for (Socket& socket : strangers) {
    std::array<std::byte, 64> room;
    const auto limit = std::chrono::steady_clock::now() + 10s;
    Progress progress;
    do {
      pollfd state{socket.fd(), POLLIN, 0};
      poll(&state, 1, 1000);
      progress = socket.read_some(std::span(room));
    } while ((progress.outcome == Progress::Outcome::moved || progress.outcome == Progress::Outcome::blocked) &&
             std::chrono::steady_clock::now() < limit);
    CHECK(progress.outcome == Progress::Outcome::closed);
  }
}

TEST_CASE("500 connections at once do not keep ranks out") {
  const UniqueId id = make_unique_id("", 0);
  const Address door = loopback_of(id);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);  // both ends are in this process
  const std::size_t count = limit.rlim_cur >= 1200 ? 500 : (limit.rlim_cur - 150) / 2;
  std::vector<Socket> strangers;
  for (std::size_t i = 0; i < count; ++i) strangers.push_back(Socket::start_connect(door));
  auto outcomes = join_all(id, everybody(4), 20000ms);
  check_met(outcomes);
}

TEST_CASE("a rank of another protocol version is refused with both versions") {
  const UniqueId id = make_unique_id("", 0);
  Socket socket = knock(loopback_of(id));
  const Received banner = receive(socket, Clock::now() + 10s);
  REQUIRE(banner.what == Received::What::message);
  CHECK(banner.head.kind == Kind::banner);
  CHECK(banner.head.version == kProtocolVersion);
  MessageHead head;
  head.version = 77;
  head.kind = Kind::hello;
  head.length = 4;
  head.token = parse_id(id).nonce;
  const std::uint32_t other_layout = 0xffffffff;
  socket.write_some(std::as_bytes(std::span(&head, 1)));
  socket.write_some(std::as_bytes(std::span(&other_layout, 1)));
  const Received answer = receive(socket, Clock::now() + 10s);
  REQUIRE(answer.what == Received::What::message);
  REQUIRE(answer.head.kind == Kind::refusal);
  try {
    throw_refusal(answer.payload);
  } catch (const Error& error) {
    CHECK(error.code() == Code::invalid_usage);
    CHECK_THAT(error.what(), Catch::Contains("version 77") && Catch::Contains("version 1"));
  }
  auto outcomes = join_all(id, everybody(2), 10000ms);  // the others do not suffer
  check_met(outcomes);
}

TEST_CASE("a rendezvous of another protocol version is named by the rank that finds it") {
  Socket listener = Socket::listen(Address::loopback(AF_INET, 0));
  const std::uint64_t nonce = 0x0123456789abcdef;
  std::thread old([&] {
    pollfd state{listener.fd(), POLLIN, 0};
    poll(&state, 1, 10000);
    int error = 0;
    Socket socket = listener.accept(error);
    MessageHead head;
    head.version = 42;
    head.kind = Kind::banner;
    head.token = hash_bytes(std::as_bytes(std::span(&nonce, 1)));
    socket.write_some(std::as_bytes(std::span(&head, 1)));
    receive(socket, Clock::now() + 10s);
  });
  const Outcome outcome = try_to_join(print_id({nonce, false, 0, {listener.local().text()}}), 1, 2, 10000ms);
  CHECK(outcome.code == Code::invalid_usage);
  CHECK_THAT(outcome.error, Catch::Contains("version 42") && Catch::Contains("version 1") && Catch::Contains("rank 1"));
  old.join();
}

TEST_CASE("a rank that never comes is named on all others at the deadline, and told when it comes late") {
  const UniqueId id = make_unique_id("", 0);
  const auto outcomes = join_all(id, {{0, 5}, {1, 5}, {4, 5}}, 1000ms);
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Code::remote);
    CHECK(outcome.error == "ranks 2 and 3 did not come within 1 s");
  }
  CHECK(try_to_join(id, 2, 5, 5000ms).error == "ranks 2 and 3 did not come within 1 s");
  CHECK(try_to_join(id, 3, 5, 5000ms).error == "ranks 2 and 3 did not come within 1 s");
}

TEST_CASE("a rank that ends while the others wait is named at once") {
  const UniqueId id = make_unique_id("", 0);
  std::vector<Outcome> outcomes;
  std::thread others([&] { outcomes = join_all(id, {{0, 4}, {1, 4}}, 20000ms); });
  const pid_t child = fork();
  if (child == 0) {
    alarm(1);  // kills it while it waits
    try_to_join(id, 2, 4, 20000ms);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  others.join();
  CHECK(WIFSIGNALED(status));
  for (const Outcome& outcome : outcomes) CHECK(outcome.error == "rank 2 ended while the ranks were meeting");
}

TEST_CASE("two ranks with one number: everybody is told") {
  const auto outcomes = join_all(make_unique_id("", 0), {{0, 4}, {1, 4}, {1, 4}, {2, 4}, {3, 4}}, 10000ms);
  // The two may both be among the first or not, but nobody gets through without them. Whoever is there when the
  // second comes is told so; who comes after the whole had met finds nobody.
  int met = 0, told = 0;
  for (const Outcome& outcome : outcomes) {
    if (outcome.bootstrap) ++met;
    if (outcome.error == "two processes or threads joined as rank 1 of 4") ++told;
  }
  INFO(met << " met, " << told << " told");
  CHECK((told == 5 || met == 4));
}

TEST_CASE("two ranks with one number before the rest: all of them are told, also who comes later") {
  const UniqueId id = make_unique_id("", 0);
  const auto outcomes = join_all(id, {{0, 4}, {1, 4}, {1, 4}}, 10000ms);
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Code::invalid_usage);
    CHECK(outcome.error == "two processes or threads joined as rank 1 of 4");
  }
  CHECK(try_to_join(id, 3, 4, 5000ms).error == "two processes or threads joined as rank 1 of 4");
}

TEST_CASE("ranks that disagree about their number are told so, with both numbers") {
  const auto outcomes = join_all(make_unique_id("", 0), {{0, 3}, {1, 3}, {2, 4}}, 10000ms);
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Code::invalid_usage);
    CHECK_THAT(outcome.error, Catch::Contains("the ranks disagree about their number") && Catch::Contains("says 3") &&
                                  Catch::Contains("rank 2 says 4"));
  }
}

TEST_CASE("an address that nobody answers is named with the cause") {
  std::string address;
  {
    KeptPort port;  // free afterwards
    address = port.text();
  }
  const Outcome made = try_to_join(print_id({1, false, 0, {address}}), 1, 2, 5000ms);
  CHECK(made.code == Code::remote);
  CHECK_THAT(made.error, Catch::Contains(address) && Catch::Contains("Connection refused (errno 111)"));
  const Outcome fixed = try_to_join(make_unique_id(address, 0), 1, 2, 300ms);
  CHECK(fixed.code == Code::remote);
  CHECK_THAT(fixed.error, Catch::Contains("rank 0") && Catch::Contains("within 0.3 s") && Catch::Contains(address) &&
                              Catch::Contains("Connection refused (errno 111)"));
}

TEST_CASE("an address where something else answers, or keeps silent, is named with what it did") {
  Socket silent = Socket::listen(Address::loopback(AF_INET, 0));
  const Outcome quiet = try_to_join(print_id({1, false, 0, {silent.local().text()}}), 1, 2, 300ms);
  CHECK_THAT(quiet.error, Catch::Contains(silent.local().text() + " (silent instead of greeting)"));

  const UniqueId other = make_unique_id("", 0);
  IdParts wrong = parse_id(other);
  wrong.nonce ^= 1;
  wrong.addresses = {wrong.addresses.back()};
  const Outcome strange = try_to_join(print_id(wrong), 1, 2, 5000ms);
  CHECK_THAT(strange.error, Catch::Contains(wrong.addresses.back() + " (answers for another unique id)"));
}

TEST_CASE("ids of one fixed address are equal for equal numbers and text, and differ otherwise") {
  const UniqueId id = make_unique_id("127.0.0.1:4567", 0);
  CHECK(text_of(id).ends_with(" at-rank0 127.0.0.1:4567"));
  CHECK(make_unique_id("127.0.0.1:4567", 0) == id);
  CHECK(make_unique_id("127.0.0.1:4567", 1) != id);
  CHECK(make_unique_id("127.0.0.1:4568", 0) != id);
  CHECK(text_of(make_unique_id("some.host:4567", 3)).ends_with(" at-rank0 some.host:4567"));
  CHECK(text_of(make_unique_id(text_of(id), 0)).ends_with(" at-rank0 127.0.0.1:4567"));
  CHECK(make_unique_id(text_of(id), 1) != make_unique_id(text_of(id), 2));
}

TEST_CASE("communicators follow each other at one fixed address, also when ranks run ahead") {
  const KeptPort port;
  constexpr int kSize = 4;
  constexpr int kCommunicators = 4;
  std::vector<std::string> errors(kSize);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank)
    threads.emplace_back([&, rank] {
      try {
        std::vector<std::unique_ptr<Bootstrap>> made;
        for (int sequence = 0; sequence < kCommunicators; ++sequence) {
          if (rank == 3) std::this_thread::sleep_for(30ms);  // the others wait for it, one communicator after another
          made.push_back(join_tcp(make_unique_id(port.text(), sequence), Rank(rank), kSize, 20000ms));
        }
        for (auto& bootstrap : made) bootstrap->barrier(), bootstrap->leave();
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(errors == std::vector<std::string>(kSize));
}

TEST_CASE("two communicators meet at one fixed address at the same time") {
  const KeptPort port;
  std::vector<Outcome> first, second;
  std::thread one([&] { first = join_all(make_unique_id(port.text(), 0), everybody(4), 20000ms); });
  std::thread two([&] { second = join_all(make_unique_id(port.text(), 1), everybody(4), 20000ms); });
  one.join();
  two.join();
  check_met(first);
  check_met(second);
}

TEST_CASE("a fixed address that another program holds is an error on rank 0 that names it") {
  Socket other = Socket::listen(Address::loopback(AF_INET, 0));
  const Outcome outcome = try_to_join(make_unique_id(other.local().text(), 0), 0, 2, 2000ms);
  CHECK(outcome.code == Code::system);
  CHECK_THAT(outcome.error, Catch::Contains(other.local().text()) && Catch::Contains("Address already in use"));
}

TEST_CASE("lists of ranks are short for people") {
  CHECK(ranks_text({}) == "no rank");
  CHECK(ranks_text({5}) == "rank 5");
  CHECK(ranks_text({0, 1}) == "ranks 0 and 1");
  CHECK(ranks_text({0, 1, 2}) == "ranks 0-2");
  CHECK(ranks_text({0, 2, 4, 5, 6, 9}) == "ranks 0, 2, 4-6 and 9");
  std::vector<int> many;
  for (int i = 0; i < 40; i += 2) many.push_back(i);
  CHECK(ranks_text(many) == "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 12 more");
}
