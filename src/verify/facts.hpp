// What follows from a plan without running it: messages and blocks per link and per node, steps, scratch. Every message
// is one block, so the payload counters of the transports can be held against these numbers exactly.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/plan/plan.hpp"

namespace hoccl {

// The messages from one rank to another over one channel, in one round.
struct ChannelFact {
  Rank from{}, to{};
  Label label = Label::ring;
  int credits = 0;
  std::int64_t messages = 0;
};

// "1 step", "2 steps".
std::string counted(std::int64_t n, std::string_view noun);

struct Facts {
  int lanes_most = 0;                      // of any rank
  std::int64_t steps = 0, steps_most = 0;  // of all ranks; of any rank
  std::uint32_t tmp_blocks_most = 0;
  std::vector<ChannelFact> channels;
  std::vector<std::int64_t> leaving;   // by node: blocks sent to other nodes
  std::vector<std::int64_t> entering;  // by node: blocks received from other nodes

  std::string describe() const;  // some lines of text
};

// node_of[r]: the node of rank r. Empty when that is unknown: nothing is said of nodes then.
Facts facts_of(const Plan& plan, std::span<const int> node_of);

}  // namespace hoccl
