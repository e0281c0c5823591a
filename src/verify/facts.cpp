#include "src/verify/facts.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace hoccl {
namespace {

std::int64_t messages_given(const Program& program, std::size_t channel) {
  std::int64_t n = 0;
  for (const Lane& lane : program.lanes)
    for (const Step& step : lane.steps)
      n += channel >= step.give && channel < static_cast<std::size_t>(step.give) + step.gives;
  return n;
}

}  // namespace

std::string counted(std::int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

Facts facts_of(const Plan& plan, std::span<const int> node_of) {
  Facts f;
  const int nodes = node_of.empty() ? 0 : 1 + *std::max_element(node_of.begin(), node_of.end());
  f.leaving.resize(static_cast<std::size_t>(nodes));
  f.entering.resize(static_cast<std::size_t>(nodes));
  for (std::size_t r = 0; r < plan.programs.size(); ++r) {
    const Program& program = plan.programs[r];
    std::int64_t steps = 0;
    for (const Lane& lane : program.lanes) steps += static_cast<std::int64_t>(lane.steps.size());
    f.steps += steps;
    f.steps_most = std::max(f.steps_most, steps);
    f.lanes_most = std::max(f.lanes_most, static_cast<int>(program.lanes.size()));
    f.tmp_blocks_most = std::max(f.tmp_blocks_most, program.tmp_blocks);
    for (std::size_t c = 0; c < program.gives.size(); ++c) {
      const Channel& channel = program.gives[c];
      const ChannelFact fact{static_cast<Rank>(r), channel.peer, channel.label, channel.credits,
                             messages_given(program, c)};
      f.channels.push_back(fact);
      if (node_of.empty()) continue;
      const int a = node_of[r], z = node_of[static_cast<std::size_t>(index(channel.peer))];
      if (a == z) continue;
      f.leaving[static_cast<std::size_t>(a)] += fact.messages;
      f.entering[static_cast<std::size_t>(z)] += fact.messages;
    }
  }
  return f;
}

std::string Facts::describe() const {
  std::string text =
      fmt::format("a round: {} in all, at most {} a rank in at most {}; scratch: at most {} a rank\n",
                  counted(steps, "step"), steps_most, counted(lanes_most, "lane"), counted(tmp_blocks_most, "block"));
  struct Sum {
    std::int64_t channels = 0, least = INT64_MAX, most = 0;
    int credits = 0;
  };
  for (const Label label : {Label::ring, Label::reduce, Label::partial, Label::rail, Label::gather, Label::direct}) {
    Sum sum;
    for (const ChannelFact& c : channels)
      if (c.label == label) {
        ++sum.channels;
        sum.least = std::min(sum.least, c.messages);
        sum.most = std::max(sum.most, c.messages);
        sum.credits = std::max(sum.credits, c.credits);
      }
    if (sum.channels == 0) continue;
    text += fmt::format("channels {:8} {:4}, each {} and {}\n", name_of(label), sum.channels,
                        counted(sum.credits, "credit"),
                        sum.least == sum.most ? counted(sum.most, "block")
                                              : fmt::format("{} to {}", sum.least, counted(sum.most, "block")));
  }
  if (leaving.size() > 1)
    for (std::size_t node = 0; node < leaving.size(); ++node)
      text += fmt::format("node {}: {} {}, {} enter{}\n", node, counted(leaving[node], "block"),
                          leaving[node] == 1 ? "leaves" : "leave", entering[node], entering[node] == 1 ? "s" : "");
  return text;
}

}  // namespace hoccl
