// The promises of transports/transport.hpp, for every transport that there is. A promise is a function of one rank's
// Side (two_ranks.hpp); it is kept when both ranks say so, as threads and, where the transport goes between processes,
// as processes. Every wait in here sleeps on the bell and on wait_fd(), so a wake-up that does not come fails any test.
#include <catch2/catch.hpp>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <random>
#include <vector>

#include "src/base/socket.hpp"
#include "tests/contract/two_ranks.hpp"

using namespace hoccl;
using namespace hoccl::test;
using namespace std::chrono_literals;

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kMany = 10'000, kFew = 3;
#else
constexpr int kMany = 100'000, kFew = 7;
#endif

std::vector<Case> cases_of(const std::string& name, std::int64_t slot, int credits) {
  std::vector<Case> list;
  for (const int width : {1, 3}) {
    if (width > 1 && name != "tcp") continue;
    LinkSpec spec;
    spec.slot = Bytes(slot), spec.credits = credits, spec.width = width;
    list.push_back({name, As::threads, spec});
    if (name != "local") list.push_back({name, As::processes, spec});
  }
  return list;
}

// Every transport, as threads and processes, with these slots.
std::vector<Case> cases(std::initializer_list<std::int64_t> slots, std::initializer_list<int> credits) {
  std::vector<Case> list;
  for (const TransportRow& row : all_transports())
    for (const std::int64_t slot : slots)
      for (const int c : credits)
        for (Case& one : cases_of(std::string(row.name), slot, c)) list.push_back(std::move(one));
  return list;
}

void keeps(const Case& what, const Body& body) {
  INFO(what.text());
  CHECK(two_ranks(what, body) == "");
}

// Message k of rank r: its length goes round through 0, 1, a prime, one less than a slot, a slot.
std::size_t length_of(int k, const LinkSpec& spec) {
  const std::size_t slot = size_of(spec.slot);
  return std::array<std::size_t, 5>{0, 1, 61, slot - 1, slot}[static_cast<std::size_t>(k) % 5];
}
std::uint32_t tag_of(int rank, int k) {
  return static_cast<std::uint32_t>(k) * 2654435761u + static_cast<unsigned>(rank);
}
// Its bytes are a stretch of one long random text.
const std::byte* bytes_of(int rank, int k) {
  static const std::vector<std::byte> text = [] {
    std::vector<std::byte> random(6'000'000);
    std::minstd_rand engine(1);
    for (std::byte& b : random) b = static_cast<std::byte>(engine() >> 8);
    return random;
  }();
  return text.data() + rank * 5003 + k % 4001 * 7;
}

void fill(std::byte* to, std::size_t n, int rank, int k) {
  if (n > 0) std::memcpy(to, bytes_of(rank, k), n);
}

bool send_next(Side& me, int k, std::size_t n) {
  std::byte* const slot = me.out->reserve();
  if (slot == nullptr) return false;
  expect(me.out->reserve() == slot, "a second reserve() gave another slot");
  fill(slot, n, me.rank, k);
  me.out->commit(Bytes(static_cast<std::int64_t>(n)), tag_of(me.rank, k));
  return true;
}

void check_message(const Slot& slot, int from, int k, std::size_t n) {
  expect(size_of(slot.bytes) == n, "message {} has {} bytes, not {}", k, slot.bytes.value, n);
  expect(slot.tag == tag_of(from, k), "message {} has tag {:#x}, not {:#x}", k, slot.tag, tag_of(from, k));
  const std::byte* const right = bytes_of(from, k);
  if (n == 0 || std::memcmp(right, slot.data, n) == 0) return;
  const auto at = std::mismatch(right, right + n, slot.data).first - right;
  expect(false, "message {} of {} bytes: byte {} is wrong", k, n, at);
}

bool take_next(Side& me, int k, std::size_t n) {
  const Slot* const slot = me.in->front();
  if (slot == nullptr) return false;
  check_message(*slot, 1 - me.rank, k, n);
  expect(me.in->front() != nullptr && me.in->front()->data == slot->data, "a second front() gave another message");
  me.in->release();
  return true;
}

// Both directions at once: `count` messages each way; `pause` is called now and then.
void exchange(Side& me, int count, const std::function<std::size_t(int)>& length,
              const std::function<void()>& pause = {}) {
  int sent = 0, taken = 0;
  me.until([&] {
    bool moved = true;
    while (moved) {
      moved = false;
      if (pause) pause();
      if (sent < count && send_next(me, sent, length(sent))) ++sent, moved = true;
      if (taken < count && take_next(me, taken, length(taken))) ++taken, moved = true;
    }
    return sent == count && taken == count;
  });
  me.until([&] { return me.out->drained(); });
}

int open_descriptors() {
  int n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("messages arrive in order with their length, tag and bytes, in both directions at once") {
  for (const Case& what : cases({64, 4096, 100'003}, {2, 3, 5}))
    keeps(what, [](Side& me) {
      me.wire_up();
      exchange(me, 53, [&](int k) { return length_of(k, me.spec); });
    });
}

TEST_CASE("messages longer than the kernel's buffers arrive whole") {
  for (const Case& what : cases({5'000'011}, {2}))
    keeps(what, [](Side& me) {
      me.wire_up();
      exchange(me, kFew, [&](int k) { return size_of(me.spec.slot) - static_cast<std::size_t>(k); });
    });
}

TEST_CASE("very many small messages, in both directions at once") {
  for (const Case& what : cases({64}, {5}))
    keeps(what, [](Side& me) {
      me.wire_up();
      exchange(me, kMany, [](int k) { return static_cast<std::size_t>(k % 9); });
    });
}

TEST_CASE("small and large messages by turns, with pauses at random") {
  for (const Case& what : cases({20'000}, {3}))
    keeps(what, [](Side& me) {
      me.wire_up();
      std::minstd_rand random(static_cast<unsigned>(me.rank + 1));
      const auto length = [](int k) { return static_cast<std::size_t>(k % 3 == 0 ? 20'000 - k : k % 3000); };
      exchange(me, 300, length, [&] {
        if (random() % 40 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
      });
    });
}

TEST_CASE("with c credits c messages fit in flight while nobody takes, and never without bound") {
  for (const Case& what : cases({64, 1 << 20}, {2, 3, 5}))
    keeps(what, [&what](Side& me) {
      me.wire_up();
      const std::size_t n = size_of(me.spec.slot);
      int sent = 0;
      if (me.rank == 0) {
        for (; sent < me.spec.credits; ++sent) expect(send_next(me, sent, n), "no credit for message {}", sent);
        if (what.transport != "tcp") {
          expect(me.out->reserve() == nullptr, "more messages in flight than credits");
        } else if (n >= 1 << 20) {  // a network also fills its own buffers, of some MiB
          for (int idle = 0; idle < 30;) {
            me.transport->poll();
            if (send_next(me, sent, n)) {
              ++sent, idle = 0;
            } else {
              ++idle;
              std::this_thread::sleep_for(1ms);
            }
            expect(sent < 100, "the link takes messages without bound");
          }
        }
      }
      const Blob count = me.wire.swap(Writer().put(sent).take());
      if (me.rank == 1) {
        const int theirs = Reader(count).get<int>();
        for (int k = 0; k < theirs; ++k) me.until([&] { return take_next(me, k, n); });
        expect(me.in->front() == nullptr, "a message that nobody sent");
      } else {
        me.until([&] { return me.out->drained(); });
      }
      me.wire.barrier();
    });
}

TEST_CASE("the oldest message stays the same, in place, until it is released") {
  for (const Case& what : cases({4096}, {3}))
    keeps(what, [](Side& me) {
      me.wire_up();
      if (me.rank == 0) {
        expect(send_next(me, 0, 61), "no credit");
        me.wire.barrier();
        expect(send_next(me, 1, 4096) && send_next(me, 2, 4096), "no credit");
        me.wire.barrier();
        me.until([&] { return me.out->drained() || me.out->direct() != nullptr; });
        me.wire.barrier();
        return;
      }
      const Slot* slot = nullptr;
      me.until([&] { return (slot = me.in->front()) != nullptr; });
      const std::byte* const data = slot->data;
      me.wire.barrier(), me.wire.barrier();
      for (int i = 0; i < 20; ++i) me.transport->poll();
      slot = me.in->front();
      expect(slot != nullptr && slot->data == data, "the message moved");
      check_message(*slot, 0, 0, 61);
      for (int k = 0; k < 3; ++k) me.until([&] { return take_next(me, k, k == 0 ? 61 : 4096); });
      me.wire.barrier();
    });
}

TEST_CASE("a sleeper is woken by a message, and by a credit given back") {
  for (const Case& what : cases({1 << 20}, {2}))
    keeps(what, [](Side& me) {
      me.wire_up();
      const std::size_t n = size_of(me.spec.slot);
      for (int k = 0; k < 4 * kFew; ++k) {
        // The slow side is the taker in the first half, the sender in the second.
        if ((k < 2 * kFew) == (me.rank == 1)) std::this_thread::sleep_for(1ms);
        me.until([&] { return me.rank == 0 ? send_next(me, k, n) : take_next(me, k, n); });
      }
      me.until([&] { return me.out->drained(); });
      me.wire.barrier();
    });
}

TEST_CASE("published memory arrives intact, and is drained only when the link needs it no more") {
  int published = 0;
  for (const Case& what : cases({100'000}, {2, 3}))
    for (const bool mixed : {false, true}) {
      if (what.as == As::threads && what.spec.width == 1 && what.transport != "shm") ++published;
      keeps(what, [mixed, &what](Side& me) {
        me.wire_up();
        Direct* const direct = me.out->direct();
        expect((direct != nullptr) == (what.transport != "shm"), "unexpected answer to direct()");
        if (direct == nullptr) return;
        std::vector<std::vector<std::byte>> homes(static_cast<std::size_t>(me.spec.credits));
        constexpr int kCount = 60;
        if (me.rank == 1) {
          for (int k = 0; k < kCount; ++k) {
            me.until([&] { return take_next(me, k, length_of(k, me.spec)); });
            if (k == 0) me.wire.barrier(), me.wire.barrier();
          }
          me.wire.barrier();
          return;
        }
        for (int k = 0; k < kCount; ++k) {
          if (mixed && k % 2 == 1) {
            me.until([&] { return send_next(me, k, length_of(k, me.spec)); });
            continue;
          }
          me.until([&] { return direct->ready(); });
          // ready() with c credits: what was published c messages ago is done with, so its home may be written again.
          std::vector<std::byte>& home = homes[static_cast<std::size_t>(k % me.spec.credits)];
          home.resize(length_of(k, me.spec));
          fill(home.data(), home.size(), 0, k);
          direct->publish(home.data(), Bytes(static_cast<std::int64_t>(home.size())), tag_of(0, k));
          if (k == 0) me.wire.barrier(), me.wire.barrier();
        }
        me.until([&] { return me.out->drained(); });
        for (auto& home : homes) std::fill(home.begin(), home.end(), std::byte{0xff});
        me.wire.barrier();
      });
    }
  CHECK(published == 8);
}

TEST_CASE("threads of one process read a published message where it lies, and it is drained by the release") {
  LinkSpec spec;
  spec.slot = Bytes(64), spec.credits = 2;
  keeps({"local", As::threads, spec}, [](Side& me) {
    me.wire_up();
    std::array<std::byte, 64> home;
    fill(home.data(), 64, 0, 0);
    if (me.rank == 0) {
      me.out->direct()->publish(home.data(), Bytes(64), tag_of(0, 0));
      me.wire.swap(Writer().put(home.data()).take());
      expect(!me.out->drained(), "drained before the release");
      me.wire.barrier();
      me.until([&] { return me.out->drained(); });
      return;
    }
    const auto* const place = Reader(me.wire.swap({})).get<std::byte*>();
    me.until([&] { return me.in->front() != nullptr; });
    expect(me.in->front()->data == place, "the message was copied");
    me.wire.barrier();
    expect(take_next(me, 0, 64), "the message is gone");
  });
}

TEST_CASE("traffic counts messages and payload bytes exactly, at commit and at release") {
  for (const Case& what : cases({4096}, {3}))
    keeps(what, [](Side& me) {
      me.wire_up();
      const auto is = [&](const Traffic& t, std::int64_t messages, std::int64_t bytes) {
        expect(t.messages == messages && t.bytes == bytes, "counted {} messages of {} bytes, not {} of {}", t.messages,
               t.bytes, messages, bytes);
      };
      if (me.rank == 0) {
        expect(send_next(me, 0, 61) && send_next(me, 1, 0), "no credit");
        is(me.out->traffic(), 2, 61);
      } else {
        me.until([&] { return me.in->front() != nullptr; });
        is(me.in->traffic(), 0, 0);
        expect(take_next(me, 0, 61), "the message is gone");
        is(me.in->traffic(), 1, 61);
        me.until([&] { return take_next(me, 1, 0); });
        is(me.in->traffic(), 2, 61);
      }
      me.wire.barrier();
      if (me.rank == 0 && me.out->direct() != nullptr) {
        const std::array<std::byte, 100> home{};
        me.until([&] { return me.out->direct()->ready(); });
        me.out->direct()->publish(home.data(), Bytes(100), 0);
        is(me.out->traffic(), 3, 161);
        me.until([&] { return me.out->drained(); });
      } else if (me.rank == 1 && me.out->direct() != nullptr) {
        me.until([&] { return me.in->front() != nullptr; });
        me.in->release();
        is(me.in->traffic(), 3, 161);
      }
      me.wire.barrier();
    });
}

TEST_CASE("either end of a link may go first, with messages in flight or none") {
  for (const Case& what : cases({4096}, {2}))
    for (const bool in_flight : {false, true})
      for (const bool sender_first : {false, true})
        keeps(what, [=](Side& me) {
          me.wire_up();
          exchange(me, 5, [](int) { return std::size_t{61}; });
          me.wire.barrier();  // all has been taken: credits are there
          if (in_flight) expect(send_next(me, 5, 61), "no credit");
          me.wire.barrier();
          const auto close_one = [&](bool sender) { sender ? void(me.out.reset()) : void(me.in.reset()); };
          // One rank closes its send ends first, the other its receive ends: for one link the sender goes first, for
          // the other the receiver.
          close_one(sender_first == (me.rank == 0));
          me.wire.barrier();
          close_one(sender_first != (me.rank == 0));
          me.wire.barrier();
        });
}

TEST_CASE("what was drained arrives although the sender has closed its end") {
  for (const Case& what : cases({100'000}, {3}))
    keeps(what, [](Side& me) {
      me.wire_up();
      if (me.rank == 0) {
        expect(send_next(me, 0, 100'000) && send_next(me, 1, 0) && send_next(me, 2, 61), "no credit");
        if (me.transport->name() == "local") {  // by reference: drained means taken
          me.wire.barrier();
          me.until([&] { return me.out->drained(); });
        } else {
          me.until([&] { return me.out->drained(); });
          me.out.reset();
          me.wire.barrier();
        }
        me.wire.barrier();
        return;
      }
      me.wire.barrier();
      const std::array<std::size_t, 3> lengths{100'000, 0, 61};
      for (int k = 0; k < 3; ++k) me.until([&] { return take_next(me, k, lengths[static_cast<std::size_t>(k)]); });
      me.wire.barrier();
    });
}

TEST_CASE("links that were opened and never met close cleanly") {
  for (const Case& what : cases({4096}, {2}))
    keeps(what, [](Side& me) {
      me.out = me.transport->open_send(me.spec, me.theirs);
      me.in = me.transport->open_receive(me.spec, me.theirs);
      const Blob for_in = me.wire.swap(me.out->hello()), for_out = me.wire.swap(me.in->hello());
      if (me.rank == 0) (void)me.out->meet(for_out);  // the other side does nothing more
      me.wire.barrier();
    });
}

TEST_CASE("a send end that meets a receive end which is gone gets an error that names the rank") {
  for (const Case& what : cases({4096}, {2}))
    keeps(what, [&what](Side& me) {
      me.in = me.transport->open_receive(me.spec, me.theirs);
      me.out = me.transport->open_send(me.spec, me.theirs);
      const Blob hello = me.wire.swap(me.in->hello());
      me.in.reset();
      me.wire.barrier();
      const auto limit = Clock::now() + kDeadline;
      while (me.rank == 1 && !me.wire.waits() && Clock::now() < limit) me.transport->poll();
      if (me.rank == 1) return me.wire.barrier();
      std::string wrong;
      while (wrong.empty()) {
        expect(Clock::now() < limit, "no error");
        wrong = error_of([&] { (void)me.out->meet(hello); });
      }
      // Shared memory knows its peer as a process.
      const std::string who = what.transport == "shm" ? "process " : "rank 1";
      expect(wrong.find(who) != std::string::npos, "the error does not name {}: {}", who, wrong);
      me.wire.barrier();
    });
}

TEST_CASE("reach is symmetric, and a no has a reason") {
  Bell bell;
  for (const TransportRow& row : all_transports()) {
    INFO(row.name);
    const auto here = row.make({&bell, "h1", "m1"}), same = row.make({&bell, "h1", "m1"});
    const auto node = row.make({&bell, "h2", "m1"}), machine = row.make({&bell, "h2", "m2"});
    const auto reach = [&](Transport& a, Transport& b) {
      const Blob x = a.profile(), y = b.profile();
      const Reach one = a.reach(x, y), other = b.reach(y, x);
      CHECK(one.yes == other.yes);
      CHECK(one.reason == other.reason);
      CHECK(one.delay_us == other.delay_us);
      CHECK(one.gigabytes_per_s == other.gigabytes_per_s);
      CHECK(one.yes == one.reason.empty());
      if (one.yes) CHECK((one.delay_us > 0 && one.gigabytes_per_s > 0));
      return one.yes;
    };
    CHECK(reach(*here, *same));
    CHECK(reach(*here, *node) == (row.name == "tcp"));
    CHECK(reach(*here, *machine) == (row.name == "tcp"));
  }
}

TEST_CASE("a forked process is not taken for its parent") {
  LinkSpec spec;
  for (const TransportRow& row : all_transports())
    CHECK(two_ranks({std::string(row.name), As::processes, spec}, [&](Side& me) {
            const Reach reach = me.transport->reach(me.transport->profile(), me.theirs);
            expect(reach.yes == (row.name != "local"), "{} reaches: {} {}", row.name, reach.yes, reach.reason);
          }) == "");
}

TEST_CASE("a memory transport holds descriptors by peer and not by link") {
  for (const char* name : {"local", "shm"}) {
    LinkSpec spec;
    spec.slot = Bytes(4096);
    keeps({name, As::processes, spec}, [&](Side& me) {
      if (me.transport->name() == "local") return;
      me.wire_up();
      const int before = open_descriptors();
      std::vector<std::unique_ptr<SendLink>> outs;
      std::vector<std::unique_ptr<ReceiveLink>> ins;
      for (int i = 0; i < 20; ++i) {
        outs.push_back(std::move(me.out)), ins.push_back(std::move(me.in));
        me.wire_up();
      }
      expect(open_descriptors() == before, "{} descriptors became {}", before, open_descriptors());
    });
  }
}

// --- networks: a peer that goes away, and strangers

TEST_CASE("a peer that is killed makes a link fail with a text that names it, whichever end is left") {
  for (const Case& base : cases_of("tcp", 4096, 2)) {
    if (base.as != As::processes) continue;
    for (const bool left_sends : {false, true}) {
      INFO(base.text() << (left_sends ? ", sender left" : ", receiver left"));
      const Body body = [left_sends](Side& me) {
        me.wire_up();
        exchange(me, 5, [](int) { return std::size_t{61}; });
        me.wire.barrier();
        if (me.rank == 1) (void)raise(SIGKILL);
        const auto limit = Clock::now() + kDeadline;
        Link& link = left_sends ? static_cast<Link&>(*me.out) : *me.in;
        while (!link.failed()) {
          expect(Clock::now() < limit, "the link did not notice");
          me.transport->poll();
          if (left_sends) {
            (void)send_next(me, 0, 4096);
          } else {
            expect(me.in->front() == nullptr, "a message of a dead rank");
          }
        }
        const std::string text = link.failure();
        for (const char* part : {"rank 1", "127.0.0.1:", "lo", "tcp"})
          expect(text.find(part) != std::string::npos, "the failure does not name {}: {}", part, text);
        expect(link.route() == "tcp lo", "the route is {}", link.route());
      };
      CHECK(two_ranks(base, body, SIGKILL) == "");
    }
  }
}

TEST_CASE("a peer's listener that is gone gives an error that names every address tried, and why") {
  Bell bell;
  const TransportContext context{&bell, "h", "m"};
  const auto& row = transport_row("tcp");
  const auto transport = row.make(context);
  auto gone = row.make(context);
  const Blob theirs = gone->profile();
  LinkSpec spec;
  spec.peer = Rank(7);
  const Blob hello = gone->open_receive(spec, theirs)->hello();
  gone.reset();
  const auto link = transport->open_send(spec, theirs);
  std::string wrong;
  const auto limit = Clock::now() + kDeadline;
  while (wrong.empty() && Clock::now() < limit) wrong = error_of([&] { (void)link->meet(hello); });
  CHECK_THAT(wrong, Catch::Contains("rank 7") && Catch::Contains("127.0.0.1:") && Catch::Contains("[::1]:") &&
                        Catch::Contains("Connection refused (errno 111)"));
}

TEST_CASE("strangers at the listener disturb nothing, whatever they say or do not say") {
  for (const Case& what : cases_of("tcp", 4096, 2))
    keeps(what, [](Side& me) {
      // The profile begins with the network's identity and the listener's port.
      Reader profile(me.theirs);
      (void)profile.get_text();
      const Address listener = Address::loopback(AF_INET, profile.get<std::uint16_t>());
      const std::vector<std::string> says = {"", "GET / HTTP/1.1\r\n\r\n", std::string(100'000, 'x'),
                                             std::string("HOCCTCP1") + std::string(24, '\0'), "HOC"};
      std::deque<Socket> strangers;
      const auto annoy = [&] {
        for (const std::string& text : says) {
          strangers.push_back(Socket::start_connect(listener));
          int error = 0;
          while (!strangers.back().finish_connect(error)) std::this_thread::yield();
          if (!text.empty()) (void)strangers.back().write_some(std::as_bytes(std::span(text.data(), text.size())));
        }
        strangers.push_back(Socket::start_connect(listener));
        strangers.pop_back();  // connects and is gone
      };
      annoy();
      me.wire_up();
      exchange(me, 20, [](int) { return std::size_t{61}; });
      annoy();
      exchange(me, 20, [&](int k) { return length_of(k, me.spec); });
      // Who said something wrong is shut out; who said nothing may still.
      me.wire.barrier();
      for (int i = 0; i < 20; ++i) me.transport->poll();
      me.wire.barrier();
      for (const std::size_t i : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
        std::array<std::byte, 16> answer;
        expect(strangers[i].read_some(std::span<std::byte>(answer)).outcome == Progress::Outcome::closed,
               "stranger {} is still there", i);
      }
    });
}
