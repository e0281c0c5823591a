// Communicators over pretended nodes: every schedule over every mix of transports moves the right bytes, and counts
// them.
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>

#include <catch2/catch.hpp>

#include "src/plan/cut.hpp"
#include "tests/support/elements.hpp"
#include "tests/support/team.hpp"

using namespace hoccl;
using namespace hoccl::test;

namespace {

std::string first_error(const std::vector<std::optional<Error>>& errors) {
  for (const auto& e : errors)
    if (e) return e->what();
  return "";
}

// Element i of rank r's input, an integer small enough that all sums are exact.
std::int32_t input(int rank, std::int64_t i) { return static_cast<std::int32_t>(i % 1009 * 7 + rank * 31); }

// Runs one collective and compares every element; throws Error{internal} where a value is wrong.
void check_collective(Communicator& comm, Kind kind, std::int64_t count, bool in_place) {
  const int n = comm.size(), me = index(comm.rank());
  const std::int64_t in_count = kind == Kind::reduce_scatter ? count * n : count;
  const std::int64_t out_count = kind == Kind::all_gather ? count * n : count;
  std::vector<std::int32_t> in(static_cast<std::size_t>(in_count)),
      out(static_cast<std::size_t>(std::max(in_count, out_count)), -1);
  for (std::int64_t i = 0; i < in_count; ++i) in[static_cast<std::size_t>(i)] = input(me, i);
  const std::vector<std::int32_t> untouched = in;

  const std::int32_t* send = in.data();
  std::int32_t* receive = out.data();
  if (in_place) {
    std::int32_t* at = kind == Kind::all_gather ? out.data() + me * count : out.data();
    std::copy(in.begin(), in.end(), at);
    send = at;
    if (kind == Kind::reduce_scatter) receive = out.data() + me * count;
  }
  call(comm, {kind, send, receive, Count(count), Type::int32, Op::sum});

  for (std::int64_t i = 0; i < out_count; ++i) {
    std::int32_t want = 0;
    if (kind == Kind::all_gather)
      want = input(static_cast<int>(i / count), i % count);
    else
      for (int r = 0; r < n; ++r) want += input(r, kind == Kind::reduce_scatter ? me * count + i : i);
    require(receive[i] == want, Code::internal, "{} of {} on rank {}, {}: element {} is {}, not {}", name_of(kind),
            count, me, in_place ? "in place" : "out of place", i, receive[i], want);
  }
  require(in_place || in == untouched, Code::internal, "{} changed its input", name_of(kind));
}

}  // namespace

TEST_CASE("every schedule gives exact results on pretended nodes over every transport") {
  const auto [nodes, per_node] =
      GENERATE(values<std::pair<int, int>>({{1, 1}, {1, 4}, {2, 2}, {3, 2}, {2, 3}, {4, 1}}));
  const std::string schedule = GENERATE("direct", "ring", "two_level", "ho_ring");
  const std::vector<std::string> transports = GENERATE(values<std::vector<std::string>>({{}, {"shm", "tcp"}, {"tcp"}}));
  const auto errors = Team::run({nodes, per_node, transports, {schedule}}, [](Communicator& comm) {
    for (const Kind kind : kKinds)
      for (const std::int64_t count : {1, 3, 17, 1000, 65537})
        for (const bool in_place : {false, true}) check_collective(comm, kind, count, in_place);
  });
  INFO(schedule << " on " << nodes << " x " << per_node);
  CHECK(first_error(errors) == "");
}

TEST_CASE("requests larger than the slots run in rounds") {
  const std::string schedule = GENERATE("direct", "ring", "two_level", "ho_ring");
  const auto errors = Team::run({2, 2, {}, {schedule}}, [](Communicator& comm) {
    for (const Kind kind : kKinds) check_collective(comm, kind, 5 * 1024 * 1024 / 4 + 13, true);
  });
  CHECK(first_error(errors) == "");
}

TEST_CASE("payload counters show exactly the blocks that the plan states") {
  const auto [nodes, per_node] = GENERATE(values<std::pair<int, int>>({{2, 4}, {3, 2}, {2, 2}}));
  const std::string schedule = GENERATE("ring", "two_level", "ho_ring");
  const Kind kind = GENERATE(Kind::all_gather, Kind::reduce_scatter, Kind::all_reduce);
  const int ranks = nodes * per_node, phases = kind == Kind::all_reduce ? 2 : 1;
  const std::int64_t block = 4096;  // elements of int32
  std::mutex mutex;
  std::map<int, std::int64_t> leaving;  // by node
  std::vector<std::int64_t> rail(static_cast<std::size_t>(ranks), 0);
  const auto errors = Team::run({nodes, per_node, {}, {schedule}}, [&](Communicator& comm) {
    check_collective(comm, kind, kind == Kind::all_reduce ? block * ranks : block, false);
    const std::lock_guard lock(mutex);
    for (const auto& t : comm.traffic())
      if (t.outgoing && comm.groups().node_of(t.peer) != comm.groups().node_of(comm.rank())) {
        leaving[comm.groups().node_of(comm.rank())] += t.traffic.bytes;
        rail[static_cast<std::size_t>(index(comm.rank()))] += t.traffic.bytes;
        require(t.transport == "tcp", Code::internal, "a link between nodes runs over {}", t.transport);
      }
  });
  REQUIRE(first_error(errors) == "");
  for (const auto& [node, bytes] : leaving)
    CHECK(bytes == phases * block * 4 * (schedule == "ring" ? ranks - 1 : per_node * (nodes - 1)));
  if (schedule != "ring")
    for (const std::int64_t bytes : rail) CHECK(bytes == phases * block * 4 * (nodes - 1));
}

TEST_CASE("all ranks hold the same bits, and the same bits in 100 runs") {
  const std::int64_t count = 3001;
  const Type type = GENERATE(Type::float32, Type::bfloat16, Type::float16);
  std::mutex mutex;
  std::vector<std::vector<unsigned char>> results;
  const auto errors = Team::run({2, 3, {}, {}}, [&](Communicator& comm) {
    const auto size = static_cast<std::size_t>(count * row(type).bytes);
    std::vector<unsigned char> in(size), out(size), first;
    unsigned seed = 12345u + static_cast<unsigned>(index(comm.rank()));
    for (std::int64_t i = 0; i < count; ++i) {
      seed = seed * 1664525u + 1013904223u;
      const double value = std::ldexp(static_cast<double>(seed >> 25) + 1, static_cast<int>(seed >> 8) % 7);
      put(type, in.data() + i * row(type).bytes, value);
    }
    for (int runs = 0; runs < 100; ++runs) {
      call(comm, {Kind::all_reduce, in.data(), out.data(), Count(count), type, Op::sum});
      if (runs == 0) first = out;
      require(out == first, Code::internal, "run {} gave other bits", runs);
    }
    const std::lock_guard lock(mutex);
    results.push_back(first);
  });
  REQUIRE(first_error(errors) == "");
  for (const auto& result : results) CHECK(result == results.front());
}

TEST_CASE("ranks that call different things end with an error that says so, and nobody hangs") {
  const auto errors = Team::run({1, 3}, [](Communicator& comm) {
    const std::int64_t count = comm.rank() == Rank{1} ? 100 : 96;
    std::vector<std::int32_t> in(100, 1), out(100, 0);
    call(comm, {Kind::all_reduce, in.data(), out.data(), Count(count), Type::int32, Op::sum});
  });
  for (const auto& error : errors) {
    REQUIRE(error.has_value());
    CHECK(error->code() == Code::remote);
    CHECK(std::string(error->what()).find("in another operation") != std::string::npos);
  }
}

TEST_CASE("ranks that begin with different collectives hear the same text, with both") {
  const auto errors = Team::run({1, 3}, [](Communicator& comm) {
    std::vector<std::int32_t> in(300, 1), out(300, 0);
    const Kind kind = comm.rank() == Rank{1} ? Kind::all_gather : Kind::all_reduce;
    call(comm, {kind, in.data(), out.data(), Count(100), Type::int32, Op::sum});
  });
  for (const auto& error : errors) {
    REQUIRE(error.has_value());
    CHECK(error->code() == Code::remote);
    CHECK(std::string(error->what())
              .find("rank 0 all_reduce by direct in 1 part(s), rank 1 all_gather by direct in 1 part(s)") !=
          std::string::npos);
  }
}

TEST_CASE("a call of no elements waits for nobody, and counts as a call") {
  const auto errors = Team::run({1, 2}, [](Communicator& comm) {
    std::int32_t value = 1, sum = 0;
    if (comm.rank() == Rank{0}) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    call(comm, {Kind::all_reduce, nullptr, nullptr, Count(0), Type::int32, Op::sum});
    call(comm, {Kind::all_reduce, &value, &sum, Count(1), Type::int32, Op::sum});
    require(sum == 2, Code::internal, "sum {}", sum);
  });
  CHECK(first_error(errors) == "");
}

TEST_CASE("a rank that never calls is named when the deadline passes") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  const auto errors = Team::run({1, 2, {transport}, {}, std::chrono::milliseconds(800)}, [](Communicator& comm) {
    std::vector<std::int32_t> data(10, 1);
    const Request request{Kind::all_reduce, data.data(), data.data(), Count(10), Type::int32, Op::sum};
    call(comm, request);  // wires
    if (comm.rank() == Rank{0}) call(comm, request);
    while (!comm.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  REQUIRE(errors[0].has_value());
  CHECK(std::string(errors[0]->what()) ==
        "all_reduce number 2 on rank 0 has not moved for 0.8 s (HOCCL_TIMEOUT) and waits for rank 1");
}

TEST_CASE("an abort from another thread ends a waiting rank") {
  const auto errors = Team::run({2, 1}, [](Communicator& comm) {
    std::vector<std::int32_t> data(10, 1);
    const Request request{Kind::all_reduce, data.data(), data.data(), Count(10), Type::int32, Op::sum};
    call(comm, request);
    if (comm.rank() == Rank{1}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      comm.abort("rank 1 has had enough");
      return;
    }
    call(comm, request);
  });
  REQUIRE(errors[0].has_value());
  CHECK(std::string(errors[0]->what()).find("rank 1 has had enough") != std::string::npos);
  CHECK_FALSE(errors[1].has_value());
}

TEST_CASE("ranks that are set differently are refused at start with both values") {
  TeamSpec spec{1, 2, {}, {"ring"}};
  spec.tweak = [](Config& config, int rank) {
    if (rank == 1) config.schedules.names = {"ho_ring"};
  };
  const auto errors = Team::run(spec, [](Communicator&) {});
  for (const auto& error : errors) {
    REQUIRE(error.has_value());
    CHECK(error->code() == Code::invalid_usage);
    CHECK(std::string(error->what()).find("=ring") != std::string::npos);
    CHECK(std::string(error->what()).find("=ho_ring") != std::string::npos);
  }
}

TEST_CASE("ranks that share no transport get an error with every transport's reason") {
  const auto errors = Team::run({2, 1, {"local", "shm"}, {}, std::chrono::milliseconds(2000)}, [](Communicator& comm) {
    std::vector<std::int32_t> data(10, 1);
    call(comm, {Kind::all_reduce, data.data(), data.data(), Count(10), Type::int32, Op::sum});
  });
  REQUIRE(errors[0].has_value());
  CHECK(std::string(errors[0]->what()).find("cannot reach rank") != std::string::npos);
  CHECK(std::string(errors[0]->what()).find("shm: ") != std::string::npos);
}

TEST_CASE("unequal nodes run the flat ring, exactly") {
  TeamSpec spec{1, 5};
  spec.tweak = [](Config& config, int rank) { config.host_id = rank < 3 ? "a" : "b"; };
  const auto errors = Team::run(spec, [](Communicator& comm) {
    require(comm.groups().describe() == "2 nodes of 3, 2 ranks", Code::internal, "{}", comm.groups().describe());
    for (const Kind kind : kKinds) check_collective(comm, kind, 1001, false);
  });
  CHECK(first_error(errors) == "");
}

TEST_CASE("a rank that left is named by who still waits for it, long before the deadline") {
  const std::string transport = GENERATE("local", "shm", "tcp");
  const auto errors = Team::run({1, 2, {transport}, {}}, [](Communicator& comm) {
    std::vector<std::int32_t> data(10, 1);
    const Request request{Kind::all_reduce, data.data(), data.data(), Count(10), Type::int32, Op::sum};
    call(comm, request);
    if (comm.rank() == Rank{0}) call(comm, request);
  });
  REQUIRE(errors[0].has_value());
  const std::string text = errors[0]->what();
  CHECK((text.find("rank 1, which has destroyed its communicator") != std::string::npos ||
         text.find("closed the connection") != std::string::npos));
}

TEST_CASE("memory that a failed call published is no longer read when it returns") {
  for (int round = 0; round < 20; ++round) {
    const auto errors = Team::run({1, 3, {"local"}, {}}, [](Communicator& comm) {
      const std::int64_t count = comm.rank() == Rank{2} ? 60'000 : 64'000;
      auto data = std::make_unique<std::int32_t[]>(64'000);
      std::fill_n(data.get(), 64'000, 1);
      call(comm, {Kind::all_reduce, data.get(), data.get(), Count(count), Type::int32, Op::sum});
      // Freed here by the exception: the sanitizers see a peer that still reads it.
    });
    for (const auto& error : errors) CHECK(error.has_value());
  }
}
