#include "topology/groups.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace hoccl {

Groups::Groups(std::span<const std::string> hosts) {
  std::map<std::string, int> number;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    const auto [at, fresh] = number.emplace(hosts[r], static_cast<int>(members_.size()));
    if (fresh) members_.emplace_back();
    auto& node = members_[static_cast<std::size_t>(at->second)];
    node_of_.push_back(at->second);
    local_of_.push_back(static_cast<int>(node.size()));
    node.push_back(static_cast<Rank>(r));
  }
  place_.resize(hosts.size());
  for (const auto& node : members_)
    for (const Rank rank : node) {
      place_[static_cast<std::size_t>(index(rank))] = static_cast<int>(order_.size());
      order_.push_back(rank);
    }
}

Groups Groups::even(int nodes, int per_node) {
  std::vector<std::string> hosts;
  for (int r = 0; r < nodes * per_node; ++r) hosts.push_back(std::to_string(r / per_node));
  return Groups(hosts);
}

bool Groups::equal() const {
  return std::all_of(members_.begin(), members_.end(),
                     [&](const auto& node) { return node.size() == members_.front().size(); });
}

std::string Groups::describe() const {
  const auto plural = [](int n) { return n == 1 ? "" : "s"; };
  if (equal()) return fmt::format("{} node{} x {} rank{}", nodes(), plural(nodes()), per_node(), plural(per_node()));
  std::string sizes;
  for (const auto& node : members_) sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", node.size());
  return fmt::format("{} nodes of {} ranks", nodes(), sizes);
}

}  // namespace hoccl
