// How fast a collective could be at best on this machine, measured beside it. Between nodes: plain TCP streams, as
// many as the schedule uses, every node sending to the next and receiving from the one before at once. On one node:
// plain copies by all ranks at once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "perf/crew.hpp"
#include "perf/options.hpp"

namespace perf {

class Bound {
 public:
  // All crews at once. streams: that leave one node together.
  Bound(const Crew& crew, int streams);
  ~Bound();
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

  // Bytes a second: the slowest node's payload each way, or what all ranks' copies read and wrote. All crews at once.
  // `node_bytes`: about how much the collective sends from a node.
  double rate(long long node_bytes);

  // The least time in microseconds of a collective at that rate. size: bytes of the larger buffer.
  double least_time(Collective collective, long long size, double rate) const;
  // Bytes that the collective must send from each node, 0 on one node.
  long long node_bytes(Collective collective, long long size) const;
  std::string text(double rate) const;

 private:
  struct Carrier;  // one rank's sockets
  void connect_all();
  double network_rate(long long node_bytes);
  double memory_rate();

  const Crew& crew_;
  int streams_;
  int nodes_ = 1;
  std::vector<Carrier> carriers_;  // by rank of this thread
  std::vector<std::byte> from_, to_;
};

}  // namespace perf
