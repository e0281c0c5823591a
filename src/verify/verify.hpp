// Proves a plan: its shape (shape.cpp), then one run over symbols (values.cpp) and one over vector clocks (order.cpp)
// by the interpreter that also moves the bytes. By confluence (src/plan/step.hpp) one run holds for all timings,
// provided the order world finds no race: the two are one check.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/plan/plan.hpp"

namespace hoccl {

struct VerifyOptions {
  bool in_place = false;  // `in` and `out` share memory, as NCCL defines it
  bool by_reference =
      true;        // messages may be the giver's own memory until released; weaker than by value, so it covers both
  int rounds = 2;  // repetitions of the program, as for a request larger than the slots
  int more_credits = 0;  // added to every channel's credits; negative: taken away
};

struct Finding {
  std::string check;  // "shape", "progress", "values", "order"
  std::string text;
};

inline constexpr std::size_t kMostFindings = 12;

struct Report {
  std::vector<Finding> findings;
  bool more = false;       // further findings were left out
  int rounds = 0;          // of each run
  std::int64_t steps = 0;  // fired, in both runs
  bool proved() const { return findings.empty(); }
  void note(std::string check, std::string text);  // keeps at most kMostFindings
  std::string describe() const;
};

inline constexpr int kMaxVerifiedRanks = 512;

// Throws Error{invalid_usage} above kMaxVerifiedRanks ranks.
Report verify(const Plan& plan, const VerifyOptions& options);

// The three checks by themselves; each adds to the findings. The two runs require a plan of good shape.
void check_shape(const Plan& plan, Report& report);
void check_values(const Plan& plan, const VerifyOptions& options, Report& report);
void check_order(const Plan& plan, const VerifyOptions& options, Report& report);

}  // namespace hoccl
