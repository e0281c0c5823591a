// Who waits, drives: the thread that called runs the lanes of its communicators until their requests are done. A thread
// that holds several ranks (a group) drives them all at once.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "src/comm/communicator.hpp"

namespace hoccl {

// Requests of one communicator, run in their order.
struct Work {
  Communicator* comm = nullptr;
  std::vector<Request> requests;
  std::optional<Error> error;  // why the communicator's requests ended early
};

// Wires what the requests need, then runs them; returns when each communicator is done or has failed.
void run(std::span<Work> works);

}  // namespace hoccl
