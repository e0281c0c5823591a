// What an ncclComm_t points to. Handles are never given back to the system, so that a call with a handle that was
// destroyed finds that out instead of crashing; the oldest dead ones are used again.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "src/comm/communicator.hpp"

struct ncclComm {
  std::atomic<std::uint64_t> magic{0};
  std::atomic<int> users{0};  // calls that are inside the communicator now
  std::atomic<bool> ending{false};
  std::unique_ptr<hoccl::Communicator> communicator;
};

namespace hoccl {

inline constexpr std::uint64_t kLive = 0x686f63636c636f6d;  // "hocclcom"

ncclComm* new_handle();
// Takes the handle out of use and ends its communicator once no call is inside any more.
void retire(ncclComm* handle);

// A call's stay inside a communicator. Throws Error{invalid_argument} for a NULL, unknown, unfinished or destroyed
// handle.
class Use {
 public:
  explicit Use(ncclComm* handle);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  Communicator& operator*() const { return *handle_->communicator; }
  Communicator* operator->() const { return handle_->communicator.get(); }

 private:
  ncclComm* handle_;
};

}  // namespace hoccl
