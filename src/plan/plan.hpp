// Plans as data: channels, lanes, programs. A program is what one rank runs; a plan is the programs of all ranks, which
// only proofs, costs and pictures need. Values: copied, compared, printed (src/plan/text.cpp), read back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/types.hpp"
#include "src/plan/collective.hpp"
#include "src/plan/step.hpp"

namespace hoccl {

// What tells the channels between two ranks apart; equal on both ends.
enum class Label : std::uint8_t {
  ring = 0,     // flat ring
  reduce = 1,   // ring inside a node, partial sums under way
  partial = 2,  // inside a node: last hop, into the lane that feeds the network
  rail = 3,     // ring between nodes
  gather = 4,   // ring inside a node, finished blocks
  direct = 5,   // every rank with every other
};
std::string_view name_of(Label label);

// One end of a channel as its rank sees it: a first-in first-out pipe to or from `peer` with `credits` messages in
// flight at most. The pair (ranks, label) names the channel on both ends.
struct Channel {
  Rank peer{};
  Label label = Label::ring;
  std::uint8_t credits = 2;
  std::uint8_t width = 1;  // rails of a node that this channel stands for: how many streams a network should give it

  bool operator==(const Channel&) const = default;
};

struct Lane {
  std::string name;
  std::vector<Step> steps;

  bool operator==(const Lane&) const = default;
};

struct Program {
  std::vector<Channel> takes;  // incoming, in the numbering of Step::take
  std::vector<Channel> gives;  // outgoing, in the numbering of Step::give
  std::vector<Lane> lanes;
  std::uint32_t tmp_blocks = 0;

  bool operator==(const Program&) const = default;
};

struct Plan {
  std::string schedule;
  Collective collective;
  int parts = 1;
  std::vector<Program> programs;  // by rank

  bool operator==(const Plan&) const = default;
};

// Plan ⇄ text, one line a step (docs/plan.md). parse_plan throws Error{invalid_argument} with the line's number.
std::string to_text(const Plan& plan);
std::string to_text(const Program& program, Rank rank);
std::string to_text(const Program& program, const Step& step);
Plan parse_plan(std::string_view text);

// Draws lanes as tracks over firing order, one row a lane, messages and waits as lines. node_of[r]: the node of rank r;
// empty when unknown, and then no nodes are drawn. `stuck` receives how many steps can never fire.
std::string to_svg(const Plan& plan, std::span<const int> node_of = {}, std::int64_t* stuck = nullptr);

}  // namespace hoccl
