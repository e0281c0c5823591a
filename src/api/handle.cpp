#include "src/api/handle.hpp"

#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "src/base/log.hpp"

namespace hoccl {
namespace {

constexpr std::size_t kDeadKept = 64;  // before the oldest dead handle is used again

constexpr std::size_t kSlabHandles = 256, kSlabs = 256;

struct Slab {
  ncclComm handles[kSlabHandles];
};

struct Handles {
  std::mutex mutex;  // guards growth and the dead
  std::size_t used = 0;
  std::deque<ncclComm*> dead;
  // release when a slab is added, partner: the acquire in is_handle().
  std::atomic<Slab*> slabs[kSlabs] = {};
};

// Never destroyed: communicators may be used from static destructors and by threads that outlive main.
Handles& handles() {
  static Handles* const table = new Handles;
  return *table;
}

bool is_handle(const ncclComm* pointer) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  for (const std::atomic<Slab*>& slab : handles().slabs) {
    const auto first = reinterpret_cast<std::uintptr_t>(slab.load(std::memory_order_acquire));
    if (first == 0) return false;
    if (address >= first && address < first + sizeof(Slab)) return (address - first) % sizeof(ncclComm) == 0;
  }
  return false;
}

}  // namespace

ncclComm* new_handle() {
  Handles& h = handles();
  const std::lock_guard lock(h.mutex);
  if (h.dead.size() <= kDeadKept && h.used < kSlabHandles * kSlabs) {
    std::atomic<Slab*>& slab = h.slabs[h.used / kSlabHandles];
    if (slab.load(std::memory_order_relaxed) == nullptr) slab.store(new Slab, std::memory_order_release);
    return &slab.load(std::memory_order_relaxed)->handles[h.used++ % kSlabHandles];
  }
  require(!h.dead.empty(), Code::system, "{} communicators live in this process: destroy some first", h.used);
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
  require(is_handle(handle), Code::invalid_argument, "{} is no communicator of this library", fmt::ptr(handle));
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

void Use::release() noexcept {
  if (ncclComm* const handle = std::exchange(handle_, nullptr)) handle->users.fetch_sub(1);
}

}  // namespace hoccl
