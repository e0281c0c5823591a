// What an ncclComm_t points to. Handles lie in arrays that are never given back to the system, so that a call with any
// pointer finds out whether it is a handle, and whether its communicator still lives, without touching foreign memory.
// The oldest dead handles are used again: one that was destroyed may name another communicator 64 destructions later.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "src/comm/communicator.hpp"
#include "src/comm/group.hpp"

struct ncclComm {
  std::atomic<std::uint64_t> magic{0};
  std::atomic<int> users{0};  // calls that are inside the communicator now, and groups that hold calls of it
  std::atomic<bool> ending{false};
  std::unique_ptr<hoccl::Communicator> communicator;
};

namespace hoccl {

inline constexpr std::uint64_t kLive = 0x686f63636c636f6d;  // "hocclcom"

// Throws Error{system} beyond 65,536 communicators at a time.
ncclComm* new_handle();
// Takes the handle out of use and ends its communicator once no call is inside any more.
void retire(ncclComm* handle);

// A call's stay inside a communicator. Throws Error{invalid_argument} for a NULL, unknown, unfinished or destroyed
// handle.
class Use final : public Stay {
 public:
  explicit Use(ncclComm* handle);
  ~Use() override { release(); }
  // Ends the stay early.
  void release() noexcept;
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  Communicator& operator*() const { return *handle_->communicator; }
  Communicator* operator->() const { return handle_->communicator.get(); }

 private:
  ncclComm* handle_;
};

}  // namespace hoccl
