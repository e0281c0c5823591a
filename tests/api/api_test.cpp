// The public C API as a program sees it: all types and operations, ranks in threads, in one thread, and what wrong
// calls say.
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include <catch2/catch.hpp>

#include "include/hoccl.h"
#include "include/nccl.h"
#include "tests/support/elements.hpp"

using namespace hoccl;
using namespace hoccl::test;

namespace {

// Communicators of one process, all driven by the test's thread.
class Comms {
 public:
  explicit Comms(int n) : all_(static_cast<std::size_t>(n)) {
    REQUIRE(ncclCommInitAll(all_.data(), n, nullptr) == ncclSuccess);
  }
  ~Comms() {
    for (ncclComm_t comm : all_) ncclCommDestroy(comm);
  }
  ncclComm_t operator[](int i) const { return all_[static_cast<std::size_t>(i)]; }
  int size() const { return static_cast<int>(all_.size()); }

  // One call on each rank, in one group.
  ncclResult_t together(const std::function<ncclResult_t(int)>& call) const {
    ncclGroupStart();
    for (int r = 0; r < size(); ++r) call(r);
    return ncclGroupEnd();
  }

 private:
  std::vector<ncclComm_t> all_;
};

using Bytes1 = std::vector<unsigned char>;

// Seven values a rank; their reductions over up to six ranks are exact in every type, fp8 included.
std::vector<double> pattern(Op op, int rank, int n) {
  std::vector<double> values;
  for (int k = 0; k < 7; ++k) switch (op) {
      case Op::sum:
        values.push_back((k + rank) % 3 == 0 ? 1 : 0);
        break;
      case Op::prod:
        values.push_back((k + rank) % 4 == 0 ? 2 : 1);
        break;
      case Op::max:
      case Op::min:
        values.push_back((k * 3 + rank * 5) % 7 + 1);
        break;
      // Equal on all ranks, a power of two times a power of two: averages are exact for n = 1, 2, 4; see `close` else.
      case Op::avg:
        values.push_back(n == 0 ? 0 : 1 << (k % 3));
        break;
    }
  return values;
}

std::vector<double> reduced(Op op, int n) {
  std::vector<double> result = pattern(op, 0, n);
  for (int r = 1; r < n; ++r) {
    const std::vector<double> next = pattern(op, r, n);
    for (std::size_t k = 0; k < result.size(); ++k) switch (op) {
        case Op::sum:
        case Op::avg:
          result[k] += next[k];
          break;
        case Op::prod:
          result[k] *= next[k];
          break;
        case Op::max:
          result[k] = std::max(result[k], next[k]);
          break;
        case Op::min:
          result[k] = std::min(result[k], next[k]);
          break;
      }
  }
  if (op == Op::avg)
    for (double& v : result) v /= n;
  return result;
}

// Exact, but for averages of floats over 3, 5 and 6 ranks: there every addend carries one rounding of 1/n and the sum n
// more.
bool equal(Type type, Op op, int n, const unsigned char* have, const Bytes1& want) {
  if (want.empty() || std::memcmp(have, want.data(), want.size()) == 0) return true;
  if (op != Op::avg || !row(type).floating || n == 1 || n == 2 || n == 4) return false;
  const auto size = static_cast<std::size_t>(row(type).bytes);
  for (std::size_t at = 0; at < want.size(); at += size) {
    const double a = get(type, have + at), b = get(type, want.data() + at);
    if (std::fabs(a - b) > (n + 1) * std::ldexp(b, -row(type).digits)) return false;
  }
  return true;
}

const std::int64_t kCounts[] = {0, 1, 3, 17, 1000, 65537};

void check_all_reduce(const Comms& comms, Type type, Op op, std::int64_t count, bool in_place) {
  const int n = comms.size();
  std::vector<Bytes1> in, out;
  for (int r = 0; r < n; ++r) {
    in.push_back(repeated(type, pattern(op, r, n), count));
    out.push_back(in_place ? in.back() : Bytes1(in.back().size(), 0xAA));
  }
  REQUIRE(comms.together([&](int r) {
    const auto i = static_cast<std::size_t>(r);
    return ncclAllReduce(in_place ? out[i].data() : in[i].data(), out[i].data(), static_cast<size_t>(count),
                         static_cast<ncclDataType_t>(type), static_cast<ncclRedOp_t>(op), comms[r], nullptr);
  }) == ncclSuccess);
  const Bytes1 want = repeated(type, reduced(op, n), count);
  for (int r = 0; r < n; ++r) {
    REQUIRE(equal(type, op, n, out[static_cast<std::size_t>(r)].data(), want));
    REQUIRE(out[static_cast<std::size_t>(r)] == out[0]);
  }
}

void check_reduce_scatter(const Comms& comms, Type type, Op op, std::int64_t count, bool in_place) {
  const int n = comms.size();
  const auto part = static_cast<std::size_t>(count * row(type).bytes);
  std::vector<Bytes1> in, out;
  for (int r = 0; r < n; ++r) {
    in.push_back(repeated(type, pattern(op, r, n), count * n));
    out.emplace_back(part, 0xAA);
  }
  const std::vector<Bytes1> before = in;
  const auto at = [&](int r) {
    const auto i = static_cast<std::size_t>(r);
    return in_place ? in[i].data() + i * part : out[i].data();
  };
  REQUIRE(comms.together([&](int r) {
    return ncclReduceScatter(in[static_cast<std::size_t>(r)].data(), at(r), static_cast<size_t>(count),
                             static_cast<ncclDataType_t>(type), static_cast<ncclRedOp_t>(op), comms[r], nullptr);
  }) == ncclSuccess);
  for (int r = 0; r < n; ++r) REQUIRE(equal(type, op, n, at(r), repeated(type, reduced(op, n), count, r * count)));
  if (!in_place) REQUIRE(in == before);
}

void check_all_gather(const Comms& comms, Type type, std::int64_t count, bool in_place) {
  const int n = comms.size();
  const auto part = static_cast<std::size_t>(count * row(type).bytes);
  std::vector<Bytes1> in, out;
  Bytes1 want;
  for (int r = 0; r < n; ++r) {
    in.push_back(repeated(type, pattern(Op::max, r, n), count));
    want.insert(want.end(), in.back().begin(), in.back().end());
    out.emplace_back(part * static_cast<std::size_t>(n), 0xAA);
    if (in_place)
      std::copy(in.back().begin(), in.back().end(),
                out.back().begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(r) * part));
  }
  REQUIRE(comms.together([&](int r) {
    const auto i = static_cast<std::size_t>(r);
    return ncclAllGather(in_place ? out[i].data() + i * part : in[i].data(), out[i].data(), static_cast<size_t>(count),
                         static_cast<ncclDataType_t>(type), comms[r], nullptr);
  }) == ncclSuccess);
  for (int r = 0; r < n; ++r) REQUIRE(out[static_cast<std::size_t>(r)] == want);
}

void check_everything(int n) {
  const Comms comms(n);
  for (const TypeRow& type : kTypes)
    for (const std::int64_t count : kCounts)
      for (const bool in_place : {false, true}) {
        INFO(type.name << " x " << count << " on " << n << " ranks, in place " << in_place);
        check_all_gather(comms, type.type, count, in_place);
        for (const OpRow& op : kOps) {
          INFO(op.name);
          check_all_reduce(comms, type.type, op.op, count, in_place);
          check_reduce_scatter(comms, type.type, op.op, count, in_place);
        }
      }
}

std::string last_error() { return ncclGetLastError(nullptr); }

}  // namespace

TEST_CASE("all types, operations, placements and counts are right on 1, 2 and 3 ranks") {
  for (const int n : {1, 2, 3}) check_everything(n);
}
TEST_CASE("all types, operations, placements and counts are right on 4 ranks") { check_everything(4); }
TEST_CASE("all types, operations, placements and counts are right on 5 ranks") { check_everything(5); }
TEST_CASE("all types, operations, placements and counts are right on 6 ranks") { check_everything(6); }

TEST_CASE("an integer average divides the sum and drops the remainder") {
  const Comms comms(3);
  std::int32_t in[3] = {-1, -3, -3}, out[3] = {};
  REQUIRE(comms.together([&](int r) {
    return ncclAllReduce(&in[r], &out[r], 1, ncclInt32, ncclAvg, comms[r], nullptr);
  }) == ncclSuccess);
  for (const std::int32_t v : out) CHECK(v == -2);
}

TEST_CASE("integer sums wrap around") {
  const Comms comms(2);
  signed char in[2] = {127, 127}, out[2] = {};
  REQUIRE(comms.together([&](int r) {
    return ncclAllReduce(&in[r], &out[r], 1, ncclInt8, ncclSum, comms[r], nullptr);
  }) == ncclSuccess);
  CHECK(out[0] == -2);
  CHECK(out[1] == -2);
}

TEST_CASE("several collectives of one group run in their order") {
  const Comms comms(3);
  std::vector<float> a(3, 1.0f), b(3, 0.0f), c(3, 0.0f);
  ncclGroupStart();
  for (int r = 0; r < 3; ++r) {
    const auto i = static_cast<std::size_t>(r);
    CHECK(ncclAllReduce(&a[i], &b[i], 1, ncclFloat, ncclSum, comms[r], nullptr) == ncclSuccess);
    CHECK(ncclAllReduce(&b[i], &c[i], 1, ncclFloat, ncclSum, comms[r], nullptr) == ncclSuccess);
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  for (const float v : c) CHECK(v == 9.0f);
}

TEST_CASE("groups nest, and nothing runs before the outermost ends") {
  const Comms comms(2);
  float in[2] = {1, 2}, out[2] = {0, 0};
  ncclGroupStart();
  ncclGroupStart();
  for (int r = 0; r < 2; ++r) ncclAllReduce(&in[r], &out[r], 1, ncclFloat, ncclSum, comms[r], nullptr);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  CHECK(out[0] == 0.0f);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  CHECK(out[0] == 3.0f);
  CHECK(out[1] == 3.0f);
}

TEST_CASE("ranks in threads meet by a unique id, alone and with several in a group") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  for (std::size_t i = 0; i < sizeof id; ++i) {
    const char c = reinterpret_cast<const char*>(&id)[i];
    CHECK((c == 0 || (c >= 32 && c < 127)));
  }
  std::vector<float> out(5, 0.0f);
  std::vector<std::thread> threads;
  const auto ranks = [&](std::vector<int> mine) {
    std::vector<ncclComm_t> comms(mine.size());
    ncclGroupStart();
    for (std::size_t i = 0; i < mine.size(); ++i) ncclCommInitRank(&comms[i], 5, id, mine[i]);
    if (ncclGroupEnd() != ncclSuccess) return;
    ncclGroupStart();
    std::vector<float> in(mine.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      in[i] = static_cast<float>(mine[i]);
      ncclAllReduce(&in[i], &out[static_cast<std::size_t>(mine[i])], 1, ncclFloat, ncclSum, comms[i], nullptr);
    }
    ncclGroupEnd();
    for (ncclComm_t comm : comms) ncclCommDestroy(comm);
  };
  threads.emplace_back(ranks, std::vector<int>{0, 3});
  threads.emplace_back(ranks, std::vector<int>{1, 2});
  threads.emplace_back(ranks, std::vector<int>{4});
  for (std::thread& t : threads) t.join();
  for (const float v : out) CHECK(v == 10.0f);
}

TEST_CASE("a communicator answers who and where it is") {
  const Comms comms(3);
  int count = 0, rank = 0, device = -1, node = -1, nodes = 0, local = 0, locals = 0, version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version == 22809);
  CHECK(ncclCommCount(comms[2], &count) == ncclSuccess);
  CHECK(ncclCommUserRank(comms[2], &rank) == ncclSuccess);
  CHECK(ncclCommCuDevice(comms[2], &device) == ncclSuccess);
  CHECK(hocclCommPlace(comms[2], &node, &nodes, &local, &locals) == ncclSuccess);
  CHECK(count == 3);
  CHECK(rank == 2);
  CHECK(device == 2);
  CHECK((node == 0 && nodes == 1 && local == 2 && locals == 3));
  char name[32];
  int parts = 0, streams = -1;
  CHECK(hocclCommChoice(comms[0], "all_reduce", 100, ncclFloat, name, sizeof name, &parts, &streams) == ncclSuccess);
  CHECK(std::string(name) == "direct");
  CHECK((parts == 1 && streams == 0));
}

TEST_CASE("wrong arguments are named, and the communicator works afterwards") {
  const Comms comms(1);
  float in = 2, out = 0;
  CHECK(ncclAllReduce(nullptr, &out, 1, ncclFloat, ncclSum, comms[0], nullptr) == ncclInvalidArgument);
  CHECK(last_error() == "ncclAllReduce: sendbuff is NULL");
  CHECK(ncclAllReduce(&in, nullptr, 1, ncclFloat, ncclSum, comms[0], nullptr) == ncclInvalidArgument);
  CHECK(last_error() == "ncclAllReduce: recvbuff is NULL");
  CHECK(ncclAllReduce(&in, &out, 1, static_cast<ncclDataType_t>(12), ncclSum, comms[0], nullptr) ==
        ncclInvalidArgument);
  CHECK(last_error() == "ncclAllReduce: 12 is no data type (0 to 11)");
  CHECK(ncclAllReduce(&in, &out, 1, ncclFloat, static_cast<ncclRedOp_t>(5), comms[0], nullptr) == ncclInvalidArgument);
  CHECK(last_error() == "ncclAllReduce: 5 is no reduction (0 to 4)");
  CHECK(ncclAllReduce(&in, &out, 1, ncclFloat, ncclSum, nullptr, nullptr) == ncclInvalidArgument);
  CHECK(last_error() == "the communicator is NULL");
  CHECK(ncclAllReduce(&in, &out, SIZE_MAX / 2, ncclFloat, ncclSum, comms[0], nullptr) == ncclInvalidArgument);
  CHECK(ncclAllReduce(reinterpret_cast<char*>(&in) + 1, &out, 1, ncclFloat, ncclSum, comms[0], nullptr) ==
        ncclInvalidArgument);
  CHECK(ncclAllReduce(&in, &out, 1, ncclFloat, ncclSum, comms[0], reinterpret_cast<cudaStream_t>(64)) ==
        ncclInvalidArgument);
  CHECK(ncclCommCount(comms[0], nullptr) == ncclInvalidArgument);
  CHECK(ncclAllReduce(nullptr, nullptr, 0, ncclFloat, ncclSum, comms[0], nullptr) == ncclSuccess);
  CHECK(ncclAllReduce(&in, &out, 1, ncclFloat, ncclSum, comms[0], nullptr) == ncclSuccess);
  CHECK(out == 2.0f);
}

TEST_CASE("creation refuses wrong ranks and ids by name") {
  ncclUniqueId id = {};
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 2, id, 2) == ncclInvalidArgument);
  CHECK(last_error() == "ncclCommInitRank: rank 2 is outside 0 to 1");
  CHECK(ncclCommInitRank(&comm, 0, id, 0) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(nullptr, 1, id, 0) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(&comm, 1, id, 0) == ncclInvalidArgument);  // an id of zeros
  CHECK(comm == nullptr);
  CHECK(ncclGetUniqueId(nullptr) == ncclInvalidArgument);
  const int twice[2] = {1, 1};
  ncclComm_t two[2];
  CHECK(ncclCommInitAll(two, 2, twice) == ncclInvalidUsage);
  CHECK(ncclCommInitAll(two, 0, nullptr) == ncclInvalidArgument);
}

TEST_CASE("an error inside a group is told at its end too, and the next group works") {
  const Comms comms(2);
  float in[2] = {1, 2}, out[2] = {0, 0};
  ncclGroupStart();
  CHECK(ncclAllReduce(&in[0], &out[0], 1, static_cast<ncclDataType_t>(99), ncclSum, comms[0], nullptr) ==
        ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  CHECK(last_error().find("99 is no data type") != std::string::npos);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  REQUIRE(comms.together([&](int r) {
    return ncclAllReduce(&in[r], &out[r], 1, ncclFloat, ncclSum, comms[r], nullptr);
  }) == ncclSuccess);
  CHECK(out[1] == 3.0f);
}

TEST_CASE("a destroyed or aborted communicator is diagnosed, not crashed on") {
  ncclComm_t comm = nullptr;
  REQUIRE(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclInvalidArgument);
  float value = 1;
  CHECK(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommAbort(comm) == ncclInvalidArgument);
  CHECK(ncclCommDestroy(nullptr) == ncclSuccess);
  CHECK(ncclCommAbort(nullptr) == ncclSuccess);
}

TEST_CASE("abort from another thread ends a call that waits for a rank that never comes") {
  Comms comms(2);
  float value = 1, out = 0;
  REQUIRE(comms.together([&](int) { return ncclSuccess; }) == ncclSuccess);
  float in[2] = {1, 2}, warm[2] = {};
  REQUIRE(comms.together([&](int r) {
    return ncclAllReduce(&in[r], &warm[r], 1, ncclFloat, ncclSum, comms[r], nullptr);
  }) == ncclSuccess);
  ncclResult_t result = ncclSuccess;
  std::thread waiting([&] { result = ncclAllReduce(&value, &out, 1, ncclFloat, ncclSum, comms[0], nullptr); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ncclResult_t async = ncclSuccess;
  CHECK(ncclCommGetAsyncError(comms[1], &async) == ncclSuccess);
  CHECK(async == ncclSuccess);
  CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
  waiting.join();
  CHECK(result == ncclRemoteError);
  CHECK(last_error().find("rank 1 called ncclCommAbort") != std::string::npos);
  CHECK(ncclCommGetAsyncError(comms[0], &async) == ncclSuccess);
  CHECK(async == ncclRemoteError);
}

TEST_CASE("an abort while a group is under way ends the group with an error") {
  Comms comms(2);
  float in[2] = {1, 2}, out[2] = {};
  REQUIRE(comms.together([&](int r) {
    return ncclAllReduce(&in[r], &out[r], 1, ncclFloat, ncclSum, comms[r], nullptr);
  }) == ncclSuccess);
  ncclResult_t result = ncclSuccess;
  std::thread waiting([&] {
    ncclGroupStart();
    ncclAllReduce(&in[0], &out[0], 1, ncclFloat, ncclSum, comms[0], nullptr);
    result = ncclGroupEnd();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
  waiting.join();
  CHECK(result == ncclRemoteError);
}

TEST_CASE("a communicator cannot be destroyed by the thread whose open group holds calls of it") {
  const Comms comms(1);
  float value = 3, out = 0;
  ncclGroupStart();
  CHECK(ncclAllReduce(&value, &out, 1, ncclFloat, ncclSum, comms[0], nullptr) == ncclSuccess);
  CHECK(ncclCommDestroy(comms[0]) == ncclInvalidUsage);
  CHECK(last_error().find("end the group first") != std::string::npos);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(out == 3.0f);
}

TEST_CASE("ranks may group calls that others make one by one") {
  const Comms a(2), b(2);
  std::vector<float> small(4, 1.0f), large(2 << 18, 1.0f);
  ncclResult_t result = ncclSuccess;  // of the thread: Catch2 asserts in one thread only
  std::thread grouped([&] {
    ncclGroupStart();
    ncclAllReduce(&small[0], &small[0], 1, ncclFloat, ncclSum, a[0], nullptr);
    ncclAllReduce(&small[1], &small[1], 1, ncclFloat, ncclSum, b[0], nullptr);
    ncclAllReduce(large.data(), large.data(), 1 << 18, ncclFloat, ncclSum, a[0], nullptr);
    result = ncclGroupEnd();
  });
  CHECK(ncclAllReduce(&small[2], &small[2], 1, ncclFloat, ncclSum, a[1], nullptr) == ncclSuccess);
  float* const half = large.data() + (1 << 18);
  CHECK(ncclAllReduce(half, half, 1 << 18, ncclFloat, ncclSum, a[1], nullptr) == ncclSuccess);
  CHECK(ncclAllReduce(&small[3], &small[3], 1, ncclFloat, ncclSum, b[1], nullptr) == ncclSuccess);
  grouped.join();
  CHECK(result == ncclSuccess);
  for (const float v : small) CHECK(v == 2.0f);
  CHECK((large.front() == 2.0f && large.back() == 2.0f));
}

TEST_CASE("a pointer that is no communicator is diagnosed without being touched") {
  float value = 1;
  const auto foreign = reinterpret_cast<ncclComm_t>(8);
  CHECK(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, foreign, nullptr) == ncclInvalidArgument);
  CHECK(last_error() == "0x8 is no communicator of this library");
  CHECK(ncclCommDestroy(foreign) == ncclInvalidArgument);
  CHECK(ncclCommDestroy(reinterpret_cast<ncclComm_t>(&value)) == ncclInvalidArgument);
}

TEST_CASE("a group of creations and collectives is refused and hands out nothing") {
  const Comms comms(1);
  float value = 1;
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t fresh = nullptr;
  ncclGroupStart();
  ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comms[0], nullptr);
  ncclCommInitRank(&fresh, 1, id, 0);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK(fresh == nullptr);
  ncclCommInitRank(&fresh, 1, id, 0);  // the id still serves, and its listener ends
  CHECK(ncclCommDestroy(fresh) == ncclSuccess);
}

TEST_CASE("results have texts, and none is NULL") {
  for (int code = 0; code <= 9; ++code) CHECK(std::strlen(ncclGetErrorString(static_cast<ncclResult_t>(code))) > 0);
  CHECK(std::string(ncclGetErrorString(ncclSuccess)) == "no error");
}

TEST_CASE("an idle communicator uses no processor time") {
  const Comms comms(4);
  std::vector<float> data(4, 1.0f);
  REQUIRE(comms.together([&](int r) {
    float& mine = data[static_cast<std::size_t>(r)];
    return ncclAllReduce(&mine, &mine, 1, ncclFloat, ncclSum, comms[r], nullptr);
  }) == ncclSuccess);
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec * 1000000L + usage.ru_utime.tv_usec + usage.ru_stime.tv_sec * 1000000L +
           usage.ru_stime.tv_usec;
  };
  const long before = used();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(used() - before < 50'000);  // us: a spinning thread would have used 500,000
}

TEST_CASE("every call is there under its own name and with a leading p") {
  // volatile: compilers take two functions for two addresses, which aliases are not.
  decltype(&ncclAllReduce) volatile plain = &ncclAllReduce, profiled = &pncclAllReduce;
  CHECK(plain == profiled);
  float value = 2, out = 0;
  const Comms comms(1);
  CHECK(pncclAllReduce(&value, &out, 1, ncclFloat, ncclSum, comms[0], nullptr) == ncclSuccess);
  CHECK(out == 2.0f);
}
