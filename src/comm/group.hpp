// The calls between ncclGroupStart and ncclGroupEnd of one thread: collected, then run together. One of the two states
// that the C API forces the library to keep outside objects (the other is the log sink).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/comm/wait.hpp"

namespace hoccl {

// Keeps a communicator alive while a group holds calls of it (src/api/handle.hpp).
class Stay {
 public:
  virtual ~Stay() = default;
};

class Group {
 public:
  // The calling thread's group.
  static Group& mine();

  bool open() const noexcept { return depth_ > 0; }
  void start() noexcept { ++depth_; }
  // Runs what was collected when the outermost group ends. Throws the first Error of the group, with all of it dropped:
  // afterwards the thread has a clean group again.
  void end();

  void add(Communicator& comm, const Request& request, std::unique_ptr<Stay> stay);
  bool holds(const Communicator& comm) const noexcept;
  // A communicator's creation: all of one group run at once, each on a thread of its own. `drop` undoes what was handed
  // out early when the group fails before creating anything.
  void add_creation(std::function<void()> create, std::function<void()> drop);
  // An argument error inside the group: reported again at its end.
  void note(const Error& error);

 private:
  struct Creation {
    std::function<void()> create, drop;
  };
  void run_all();

  int depth_ = 0;
  std::vector<Work> works_;
  std::vector<std::unique_ptr<Stay>> stays_;  // one for each of works_
  std::vector<Creation> creations_;
  std::optional<Error> error_;
};

}  // namespace hoccl
