// The ranks that one thread drives, with a communicator for each schedule, and the few things that all ranks of all
// processes do together: meet, find the largest of a number, add up, tell everybody. All of it by the library itself.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "hoccl.h"
#include "nccl.h"

namespace perf {

// Ends the program with the library's own words when a call failed.
void must(ncclResult_t result, const char* call);
[[noreturn]] void die(const std::string& why);

struct Place {
  int node = 0, nodes = 1, local = 0, locals = 1;
};

class Crew {
 public:
  Crew(int first_rank, int ranks, int world) : first_rank_(first_rank), ranks_(ranks), world_(world) {}
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Makes one more communicator of all ranks; the other crews do the same with the same id.
  void join(const ncclUniqueId& id);

  int first_rank() const { return first_rank_; }
  int ranks() const { return ranks_; }
  int world() const { return world_; }
  bool prints() const { return first_rank_ == 0; }
  ncclComm_t comm(int schedule, int i) const { return comms_[static_cast<std::size_t>(schedule * ranks_ + i)]; }
  Place place(int i) const;

  // Calls one collective for each rank of this thread, `times` times over; as one group when that is several calls.
  void together(const std::function<ncclResult_t(int i)>& call, const char* name, int times = 1) const;

  void meet() const { total(0); }
  double largest(double mine) const;
  long long total(long long mine) const;
  // One T from each rank of this thread; gives those of all ranks, by rank.
  template <class T>
  std::vector<T> gather(const std::vector<T>& mine) const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<std::size_t>(world_));
    gather_bytes(mine.data(), all.data(), sizeof(T));
    return all;
  }

 private:
  void gather_bytes(const void* mine, void* all, std::size_t bytes) const;

  int first_rank_, ranks_, world_;
  std::vector<ncclComm_t> comms_;  // by schedule, then by rank
};

}  // namespace perf
