// Ranks as threads of the test: a communicator for each, on pretended nodes, over chosen transports and schedules.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/comm/wait.hpp"

namespace hoccl::test {

struct TeamSpec {
  int nodes = 1;
  int per_node = 1;
  std::vector<std::string> transports{};  // empty: all
  std::vector<std::string> schedules{};
  std::chrono::milliseconds timeout{30'000};
  std::function<void(Config&, int rank)> tweak{};
};

// Runs `body` on a thread for each rank. A body that throws Error ends its rank; what the ranks threw is returned by
// rank.
class Team {
 public:
  using Body = std::function<void(Communicator&)>;

  static std::vector<std::optional<Error>> run(const TeamSpec& spec, const Body& body) {
    const int ranks = spec.nodes * spec.per_node;
    auto bootstraps = join_threads(ranks, spec.timeout);
    std::vector<std::optional<Error>> errors(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        try {
          Config config;
          config.start_timeout = config.timeout = spec.timeout;
          config.host_id = "node" + std::to_string(r / spec.per_node);
          config.transports.names = spec.transports;
          config.schedules.names = spec.schedules;
          if (spec.tweak) spec.tweak(config, r);
          Communicator comm(std::move(bootstraps[static_cast<std::size_t>(r)]), config, r);
          body(comm);
        } catch (const Error& e) {
          errors[static_cast<std::size_t>(r)] = e;
        }
      });
    for (std::thread& thread : threads) thread.join();
    return errors;
  }
};

// One request to its end; throws what ended it.
inline void call(Communicator& comm, const Request& request) {
  Work work{&comm, {request}, std::nullopt};
  run({&work, 1});
  if (work.error) throw Error(*work.error);
}

}  // namespace hoccl::test
