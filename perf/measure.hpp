// The buffers of one thread's ranks, and the collective over them: timed, checked, counted.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "perf/crew.hpp"
#include "perf/data.hpp"
#include "perf/options.hpp"

namespace perf {

// One row: what a call is given, and the size that the row is named by.
struct Shape {
  std::size_t count = 0;    // the call's own: all-gather elements sent, reduce-scatter elements received
  long long size = 0;       // bytes of the larger buffer
  long long block = 0;      // bytes of one rank's part of it; all-reduce: the largest part
  double bus_factor = 1.0;  // bus bandwidth / algorithm bandwidth
};

class Bench {
 public:
  Bench(const Options& options, Crew& crew);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // The row for a wanted size; parts of all-gather and reduce-scatter are whole multiples of 16 bytes.
  Shape shape(long long wanted, const NamedType& type) const;

  // What the following calls run.
  void load(const NamedType& type, const NamedOp& op);
  void load(const Shape& shape);

  // Microseconds of one operation, the mean over the iterations and the operations of each, of the slowest rank.
  double timed(int schedule, bool in_place, int iterations);
  // Elements that differ from what they must be, over all ranks.
  long long checked(int schedule, bool in_place);
  // Prints what one operation moves, by rank and channel. parts: that the plan cuts each rank's share into.
  void counted(int schedule, const std::string& name, int parts);
  double relative_bound() const { return data_->relative_bound(); }

 private:
  struct Buffers {
    std::byte* send = nullptr;
    std::byte* receive = nullptr;
  };
  struct Call {
    std::byte* send;
    std::byte* receive;
  };
  Call call(int i, bool in_place) const;
  void run(int schedule, bool in_place, int operations = 1) const;
  std::string in_shares(long long bytes) const;
  void refill(int i, bool in_place);
  long long wrong(int i, bool in_place) const;

  const Options& options_;
  Crew& crew_;
  std::size_t send_bytes_ = 0, receive_bytes_ = 0;
  std::vector<Buffers> buffers_;
  NamedType type_{};
  NamedOp op_{};
  Shape shape_;
  std::unique_ptr<Data> data_;
  std::vector<Pattern> inputs_;  // of all ranks
};

}  // namespace perf
