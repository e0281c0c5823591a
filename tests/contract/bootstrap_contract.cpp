// The promises of a bootstrap, kept by both implementations: each case runs over TCP and over threads.
#include <poll.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/base/bell.hpp"
#include "src/base/error.hpp"
#include "src/bootstrap/bootstrap.hpp"
#include "src/bootstrap/calls.hpp"

using namespace hoccl;
using namespace std::chrono_literals;

namespace {

using Ranks = std::vector<std::unique_ptr<Bootstrap>>;

// Does `work` for each rank in a thread of its own; the text of its error, or empty.
std::vector<std::string> on_each(int size, const std::function<void(int)>& work) {
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      auto& error = errors[static_cast<std::size_t>(rank)];
      try {
        work(rank);
      } catch (const Error& e) {
        error = fmt::format("{}: {}", static_cast<int>(e.code()), e.what());
      } catch (const std::exception& e) {
        error = fmt::format("unexpected: {}", e.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void all_well(const std::vector<std::string>& errors) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    INFO("rank " << rank);
    CHECK(errors[rank] == "");
  }
}

Ranks over_tcp(int size, std::chrono::milliseconds deadline) {
  const UniqueId id = make_unique_id("", 0);
  Ranks ranks(static_cast<std::size_t>(size));
  all_well(on_each(
      size, [&](int rank) { ranks[static_cast<std::size_t>(rank)] = join_tcp(id, Rank(rank), size, deadline); }));
  return ranks;
}

struct Kind {
  const char* name;
  Ranks (*make)(int size, std::chrono::milliseconds deadline);
};
const Kind kKinds[] = {{"tcp", over_tcp}, {"threads", join_threads}};

Bootstrap& at(const Ranks& ranks, int rank) { return *ranks[static_cast<std::size_t>(rank)]; }

Blob bytes(const std::string& text) {
  const auto* from = reinterpret_cast<const std::byte*>(text.data());
  return Blob(from, from + text.size());
}
std::string text(const Blob& blob) { return {reinterpret_cast<const char*>(blob.data()), blob.size()}; }

// A blob that tells who made it and when.
Blob pattern(int rank, int round, std::size_t size) {
  Blob blob(size);
  std::minstd_rand random(static_cast<unsigned>(rank * 1000 + round + 1));
  for (std::byte& b : blob) b = static_cast<std::byte>(random());
  return blob;
}

void leave_all(Ranks& ranks) {
  for (auto& rank : ranks) rank->leave();
  ranks.clear();
}

// Polls like a rank that waits for something else, until there is bad news.
bool hears_of_it(Bootstrap& rank) {
  const auto limit = std::chrono::steady_clock::now() + 10s;
  while (!rank.aborted() && std::chrono::steady_clock::now() < limit) {
    rank.poll();
    poll(nullptr, 0, 1);
  }
  return rank.aborted();
}

void expect_contains(const std::string& whole, const std::string& part) { CHECK_THAT(whole, Catch::Contains(part)); }

}  // namespace

TEST_CASE("exchange gives everybody everybody's bytes, of any size, round after round") {
  const Kind kind = GENERATE(from_range(std::begin(kKinds), std::end(kKinds)));
  const int size = GENERATE(1, 2, 3, 9, 12);
  INFO(kind.name << ", " << size << " ranks");
  Ranks ranks = kind.make(size, 20000ms);
  const std::size_t sizes[] = {0, 1, 17, 4096, 65537, 300001};
  const auto size_of_blob = [&](int rank, int round) { return sizes[static_cast<std::size_t>(rank + round) % 6]; };
  all_well(on_each(size, [&](int me) {
    for (int round = 0; round < 6; ++round) {
      const auto all = at(ranks, me).exchange(pattern(me, round, size_of_blob(me, round)));
      require(all.size() == static_cast<std::size_t>(size), Code::internal, "{} blobs", all.size());
      for (int from = 0; from < size; ++from)
        require(all[static_cast<std::size_t>(from)] == pattern(from, round, size_of_blob(from, round)), Code::internal,
                "round {}: wrong bytes of rank {}", round, from);
    }
  }));
  for (int rank = 0; rank < size; ++rank) {
    CHECK(at(ranks, rank).rank() == Rank(rank));
    CHECK(at(ranks, rank).size() == size);
    CHECK_FALSE(at(ranks, rank).aborted());
    CHECK(at(ranks, rank).reason().empty());
  }
  leave_all(ranks);
}

TEST_CASE("swap brings each message to the rank it names, in order, also several to one and to oneself") {
  const Kind kind = GENERATE(from_range(std::begin(kKinds), std::end(kKinds)));
  const int size = GENERATE(1, 2, 11, 20);
  INFO(kind.name << ", " << size << " ranks");
  constexpr int kRounds = 4;
  // sent[round][from]: all decided beforehand, so that every rank can tell what it must get.
  std::minstd_rand random(7);
  std::vector<std::vector<std::vector<Message>>> sent(kRounds);
  for (int round = 0; round < kRounds; ++round)
    for (int from = 0; from < size; ++from) {
      auto& messages = sent[static_cast<std::size_t>(round)].emplace_back();
      const unsigned count = round == 0 ? 0 : random() % 8;
      for (unsigned i = 0; i < count; ++i)
        messages.emplace_back(Rank(static_cast<int>(random() % static_cast<unsigned>(size))),
                              bytes(fmt::format("{} {} {}", round, from, i)));
      if (round == 3) messages.emplace_back(Rank(from), Blob());
    }
  Ranks ranks = kind.make(size, 20000ms);
  all_well(on_each(size, [&](int me) {
    for (int round = 0; round < kRounds; ++round) {
      std::vector<Message> expected;
      for (int from = 0; from < size; ++from)
        for (const auto& [to, blob] : sent[static_cast<std::size_t>(round)][static_cast<std::size_t>(from)])
          if (to == Rank(me)) expected.emplace_back(Rank(from), blob);
      const auto got = at(ranks, me).swap(sent[static_cast<std::size_t>(round)][static_cast<std::size_t>(me)]);
      require(got == expected, Code::internal, "round {}: {} messages instead of {}, or others", round, got.size(),
              expected.size());
      at(ranks, me).barrier();
    }
  }));
  leave_all(ranks);
}

TEST_CASE("a message to a rank that does not exist is refused") {
  const Kind kind = GENERATE(from_range(std::begin(kKinds), std::end(kKinds)));
  Ranks ranks = kind.make(1, 20000ms);
  CHECK_THROWS_WITH(at(ranks, 0).swap({{Rank(1), Blob()}}), "a message to rank 1 of 1");
  leave_all(ranks);
}

TEST_CASE("no rank passes a barrier before all have come to it") {
  const Kind kind = GENERATE(from_range(std::begin(kKinds), std::end(kKinds)));
  constexpr int kSize = 10;
  Ranks ranks = kind.make(kSize, 20000ms);
  std::atomic<int> came{0};
  all_well(on_each(kSize, [&](int me) {
    for (int round = 1; round <= 20; ++round) {
      ++came;
      at(ranks, me).barrier();
      require(came.load() >= round * kSize, Code::internal, "barrier {} let a rank pass too early", round);
      at(ranks, me).barrier();
    }
  }));
  leave_all(ranks);
}

TEST_CASE("an abort reaches all ranks with its reason, ends their calls, and the first reason stays") {
  const Kind kind = GENERATE(from_range(std::begin(kKinds), std::end(kKinds)));
  const int culprit = GENERATE(0, 1, 12);
  constexpr int kSize = 13;
  INFO(kind.name << ", rank " << culprit << " aborts");
  Ranks ranks = kind.make(kSize, 20000ms);
  const auto errors = on_each(kSize, [&](int me) {
    if (me == culprit) {
      at(ranks, me).abort("the cable burns");
      at(ranks, me).abort("another reason");
    } else if (me % 2 == 0) {
      at(ranks, me).barrier();  // never complete
    } else {
      require(hears_of_it(at(ranks, me)), Code::internal, "no news");
    }
  });
  for (int rank = 0; rank < kSize; ++rank) {
    INFO("rank " << rank);
    CHECK(errors[static_cast<std::size_t>(rank)] == (rank != culprit && rank % 2 == 0 ? "6: the cable burns" : ""));
    CHECK(at(ranks, rank).aborted());
    CHECK(at(ranks, rank).reason() == "the cable burns");
    CHECK_THROWS_WITH(at(ranks, rank).exchange({}), "the cable burns");
  }
}

TEST_CASE("an abort from another thread of the same rank ends its call") {
  const Kind kind = GENERATE(from_range(std::begin(kKinds), std::end(kKinds)));
  Ranks ranks = kind.make(2, 20000ms);
  const auto errors = on_each(2, [&](int me) {
    if (me == 1) return at(ranks, 0).barrier();
    std::this_thread::sleep_for(50ms);
    at(ranks, 0).abort("stopped by the user");
  });
  CHECK(errors[1] == "6: stopped by the user");
  CHECK(hears_of_it(at(ranks, 1)));
}

TEST_CASE("news of an abort wakes a rank that sleeps on its bell and its descriptor") {
  const Kind kind = GENERATE(from_range(std::begin(kKinds), std::end(kKinds)));
  INFO(kind.name);
  Bell bell;
  Ranks ranks = kind.make(2, 20000ms);
  at(ranks, 0).set_bell(&bell);
  std::thread other([&] {
    std::this_thread::sleep_for(50ms);
    at(ranks, 1).abort("over");
  });
  Bell* const bells[] = {&bell};
  const int descriptors[] = {at(ranks, 0).wait_fd()};
  bool woken = true;
  while (woken && !at(ranks, 0).aborted()) {
    bell.arm();
    woken = sleep_on(bells, descriptors, 10s);
    bell.disarm();
    at(ranks, 0).poll();
  }
  CHECK(woken);
  CHECK(at(ranks, 0).reason() == "over");
  other.join();
  at(ranks, 0).set_bell(nullptr);
}

TEST_CASE("a rank that ends without leaving aborts all others, with its name") {
  const Kind kind = GENERATE(from_range(std::begin(kKinds), std::end(kKinds)));
  const int dead = GENERATE(0, 1, 11);
  constexpr int kSize = 12;
  INFO(kind.name << ", rank " << dead << " dies");
  Ranks ranks = kind.make(kSize, 20000ms);
  const auto errors = on_each(kSize, [&](int me) {
    if (me == dead) {
      ranks[static_cast<std::size_t>(me)].reset();
    } else {
      at(ranks, me).barrier();
    }
  });
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == dead) continue;
    INFO("rank " << rank);
    expect_contains(errors[static_cast<std::size_t>(rank)], fmt::format("6: rank {} ended without leaving", dead));
  }
}

TEST_CASE("ranks that leave may go in any order, and nobody calls it a failure") {
  const Kind kind = GENERATE(from_range(std::begin(kKinds), std::end(kKinds)));
  constexpr int kSize = 12;
  INFO(kind.name);
  for (int repeat = 0; repeat < 5; ++repeat) {
    Ranks ranks = kind.make(kSize, 20000ms);
    std::atomic<int> aborted{0};
    all_well(on_each(kSize, [&](int me) {
      at(ranks, me).barrier();
      std::this_thread::sleep_for(std::chrono::microseconds((me * 7 + repeat * 5) % kSize * 300));
      at(ranks, me).poll();
      if (at(ranks, me).aborted()) ++aborted;
      at(ranks, me).leave();
      ranks[static_cast<std::size_t>(me)].reset();
    }));
    CHECK(aborted == 0);
  }
}

TEST_CASE("a call that needs a rank which has left fails on all and names it") {
  const Kind kind = GENERATE(from_range(std::begin(kKinds), std::end(kKinds)));
  const int gone = GENERATE(0, 1, 11);
  constexpr int kSize = 12;
  INFO(kind.name << ", rank " << gone << " leaves");
  Ranks ranks = kind.make(kSize, 20000ms);
  const auto errors = on_each(kSize, [&](int me) {
    at(ranks, me).barrier();
    if (me == gone) {
      at(ranks, me).leave();
    } else {
      at(ranks, me).exchange({});
    }
  });
  for (int rank = 0; rank < kSize; ++rank) {
    INFO("rank " << rank);
    CHECK(errors[static_cast<std::size_t>(rank)] ==
          (rank == gone ? "" : fmt::format("5: exchange needs rank {}, which has left this communicator", gone)));
    CHECK_FALSE(at(ranks, rank).aborted());
  }
  CHECK_THROWS_WITH(at(ranks, gone).barrier(), Catch::Contains(fmt::format("rank {}, which has left", gone)));
  leave_all(ranks);
}

TEST_CASE("a rank that does not come to a call is named on all others at the deadline") {
  const Kind kind = GENERATE(from_range(std::begin(kKinds), std::end(kKinds)));
  const int late = GENERATE(0, 1, 10);
  constexpr int kSize = 11;
  INFO(kind.name << ", rank " << late << " does not come");
  Ranks ranks = kind.make(kSize, 1000ms);
  const auto errors = on_each(kSize, [&](int me) {
    if (me == late) return;
    if (me == 0) std::this_thread::sleep_for(500ms);  // its deadline is the last: the others ask it
    at(ranks, me).exchange(Blob(3));
  });
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == late) continue;
    INFO("rank " << rank << ": " << errors[static_cast<std::size_t>(rank)]);
    expect_contains(errors[static_cast<std::size_t>(rank)], "6: exchange: ");
    expect_contains(errors[static_cast<std::size_t>(rank)], fmt::format("rank {} did not come within 1 s", late));
  }
  CHECK(hears_of_it(at(ranks, late)));
}

TEST_CASE("ranks that call different things are told so") {
  const Kind kind = GENERATE(from_range(std::begin(kKinds), std::end(kKinds)));
  INFO(kind.name);
  Ranks ranks = kind.make(3, 20000ms);
  const auto errors = on_each(3, [&](int me) {
    if (me == 1) {
      at(ranks, me).swap({});
    } else {
      at(ranks, me).exchange({});
    }
  });
  for (const std::string& error : errors) {
    expect_contains(error, "called swap");
    expect_contains(error, "called exchange");
    expect_contains(error, "rank 1");
  }
}

TEST_CASE("any thread may poll, ask and abort while a rank is in a call") {
  const Kind kind = GENERATE(from_range(std::begin(kKinds), std::end(kKinds)));
  INFO(kind.name);
  constexpr int kSize = 3;
  Ranks ranks = kind.make(kSize, 20000ms);
  std::atomic<bool> done{false};
  std::thread pest([&] {
    while (!done) {
      for (int rank = 0; rank < kSize; ++rank) {
        at(ranks, rank).poll();
        (void)at(ranks, rank).aborted();
        (void)at(ranks, rank).reason();
      }
      std::this_thread::yield();
    }
  });
  all_well(on_each(kSize, [&](int me) {
    for (int round = 0; round < 100; ++round) {
      const auto all = at(ranks, me).exchange(bytes(fmt::format("{}:{}", me, round)));
      for (int from = 0; from < kSize; ++from)
        require(text(all[static_cast<std::size_t>(from)]) == fmt::format("{}:{}", from, round), Code::internal,
                "round {}", round);
    }
  }));
  done = true;
  pest.join();
  leave_all(ranks);
}
