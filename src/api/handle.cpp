#include "src/api/handle.hpp"

#include <deque>
#include <mutex>
#include <thread>

#include "src/base/log.hpp"

namespace hoccl {
namespace {

constexpr std::size_t kDeadKept = 64;  // before the oldest dead handle is used again

struct Handles {
  std::mutex mutex;
  std::deque<std::unique_ptr<ncclComm>> all;
  std::deque<ncclComm*> dead;
};

// Never destroyed: communicators may be used from static destructors and by threads that outlive main.
Handles& handles() {
  static Handles* const table = new Handles;
  return *table;
}

}  // namespace

ncclComm* new_handle() {
  Handles& h = handles();
  const std::lock_guard lock(h.mutex);
  if (h.dead.size() <= kDeadKept) {
    h.all.push_back(std::make_unique<ncclComm>());
    return h.all.back().get();
  }
  ncclComm* again = h.dead.front();
  h.dead.pop_front();
  again->ending.store(false);
  return again;
}

void retire(ncclComm* handle) {
  handle->magic.store(0);
  // Partner: the increment in Use. Whoever came in before sees its work through or is thrown out by an abort.
  while (handle->users.load() != 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  handle->communicator.reset();
  Handles& h = handles();
  const std::lock_guard lock(h.mutex);
  h.dead.push_back(handle);
}

Use::Use(ncclComm* handle) : handle_(handle) {
  require(handle != nullptr, Code::invalid_argument, "the communicator is NULL");
  // seq_cst on both sides: either retire() sees this user, or this user sees that the handle is dead.
  handle->users.fetch_add(1);
  if (handle->magic.load() == kLive) {
    log::set_rank(index(handle->communicator->rank()));
    return;
  }
  handle->users.fetch_sub(1);
  fail(Code::invalid_argument, "the communicator {} is not alive: it was destroyed, aborted, or never made",
       fmt::ptr(handle));
}

Use::~Use() { handle_->users.fetch_sub(1); }

}  // namespace hoccl
