// How ranks are gathered: which node each rank is on, and the ring orders that follow. A value, equal on every rank.
// Until the detector feeds it, it is made from the host identities that the ranks exchange at start.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/base/types.hpp"

namespace hoccl {

class Groups {
 public:
  Groups() = default;
  // hosts[r] is the identity of the node that rank r is on. Nodes are numbered by their lowest rank, ranks in a node in
  // ascending order, so the answer does not depend on the order of arrival.
  explicit Groups(std::span<const std::string> hosts);
  // `nodes` nodes of `per_node` ranks each, rank r on node r / per_node.
  static Groups even(int nodes, int per_node);

  int ranks() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  int node_of(Rank rank) const { return node_of_[static_cast<std::size_t>(index(rank))]; }
  int local_of(Rank rank) const { return local_of_[static_cast<std::size_t>(index(rank))]; }
  const std::vector<Rank>& members(int node) const { return members_[static_cast<std::size_t>(node)]; }

  // True when every node has the same number of ranks, so that local index j of all nodes forms a rail.
  bool equal() const;
  int per_node() const { return static_cast<int>(members_.front().size()); }

  // All ranks node by node: the order of the flat ring, which enters and leaves each node once.
  const std::vector<Rank>& node_order() const { return order_; }
  int place_in_order(Rank rank) const { return place_[static_cast<std::size_t>(index(rank))]; }

  // "2 nodes x 4 ranks" or "3 nodes of 2, 4, 1 ranks".
  std::string describe() const;

 private:
  std::vector<int> node_of_, local_of_, place_;
  std::vector<std::vector<Rank>> members_;
  std::vector<Rank> order_;
};

}  // namespace hoccl
