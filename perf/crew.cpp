// See crew.hpp. What ranks tell each other runs on the communicators of the first schedule.
#include "perf/crew.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace perf {

void die(const std::string& why) {
  std::fprintf(stderr, HOCCL_PERF_COLLECTIVE "_perf: %s\n", why.c_str());
  std::fflush(nullptr);
  _exit(1);  // other threads may be inside the library, so nothing is torn down
}

void must(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  die(std::string(call) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(nullptr));
}

Crew::~Crew() {
  for (const ncclComm_t comm : comms_) ncclCommDestroy(comm);
}

void Crew::join(const ncclUniqueId& id) {
  std::vector<ncclComm_t> made(static_cast<std::size_t>(ranks_));
  together([&](int i) { return ncclCommInitRank(&made[static_cast<std::size_t>(i)], world_, id, first_rank_ + i); },
           "ncclCommInitRank");
  comms_.insert(comms_.end(), made.begin(), made.end());
}

Place Crew::place(int i) const {
  Place p;
  must(hocclCommPlace(comm(0, i), &p.node, &p.nodes, &p.local, &p.locals), "hocclCommPlace");
  return p;
}

void Crew::together(const std::function<ncclResult_t(int)>& call, const char* name, int times) const {
  if (ranks_ == 1 && times == 1) return must(call(0), name);
  must(ncclGroupStart(), "ncclGroupStart");
  for (int k = 0; k < times; ++k)
    for (int i = 0; i < ranks_; ++i) must(call(i), name);
  must(ncclGroupEnd(), name);
}

double Crew::largest(double mine) const {
  std::vector<double> values(static_cast<std::size_t>(ranks_), mine);
  together(
      [&](int i) {
        double* const value = &values[static_cast<std::size_t>(i)];
        return ncclAllReduce(value, value, 1, ncclDouble, ncclMax, comm(0, i), nullptr);
      },
      "ncclAllReduce (the largest of all ranks)");
  return values[0];
}

long long Crew::total(long long mine) const {
  std::vector<long long> values(static_cast<std::size_t>(ranks_), 0);
  values[0] = mine;
  together(
      [&](int i) {
        long long* const value = &values[static_cast<std::size_t>(i)];
        return ncclAllReduce(value, value, 1, ncclInt64, ncclSum, comm(0, i), nullptr);
      },
      "ncclAllReduce (the total of all ranks)");
  return values[0];
}

void Crew::gather_bytes(const void* mine, void* all, std::size_t bytes) const {
  const std::size_t whole = bytes * static_cast<std::size_t>(world_);
  std::vector<std::byte> received(whole * static_cast<std::size_t>(ranks_));
  together(
      [&](int i) {
        const auto at = static_cast<std::size_t>(i);
        return ncclAllGather(static_cast<const std::byte*>(mine) + at * bytes, received.data() + at * whole, bytes,
                             ncclInt8, comm(0, i), nullptr);
      },
      "ncclAllGather (a word from all ranks)");
  std::memcpy(all, received.data(), whole);
}

}  // namespace perf
