// A queue of message slots in memory that two ranks share: one producer, one consumer, no lock, no system call. The
// memory is given (transports/shm: a Segment, transports/local: the heap); the layout says where its parts lie.
//
// Each slot has a head on a cache line of its own; its `sequence` is the flag that the consumer polls. The consumer's
// count of released slots has another line. So in steady state a message moves two lines beside the payload, and each
// side looks at the other's line only when what it remembers of it does not suffice.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/base/bytes.hpp"
#include "src/base/types.hpp"

namespace hoccl {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t whole_lines(std::size_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

// Plain words, used through atomic_ref, so that zeroed memory is a queue without being touched first.
struct alignas(kCacheLine) QueueEnd {
  std::uint64_t released = 0;  // slots given back; written by the consumer
};
struct alignas(kCacheLine) SlotHead {
  std::uint64_t sequence = 0;        // number of the message in the slot, from 1; written by the producer
  const std::byte* place = nullptr;  // where the message is, when both ends see one memory; null: in the slot
  std::int64_t bytes = 0;
  std::uint32_t tag = 0;
};
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free, "queues lie in memory shared between processes");

struct QueueLayout {
  QueueEnd* end = nullptr;
  std::byte* heads = nullptr;  // of slot 0; slot i: heads + i * head_stride
  std::size_t head_stride = 0;
  std::byte* data = nullptr;  // likewise
  std::size_t data_stride = 0;
  std::uint32_t credits = 0;

  SlotHead& head(std::uint32_t slot) const { return *reinterpret_cast<SlotHead*>(heads + slot * head_stride); }
};

// One side of the queue; `at` is its next slot.
class QueueSide {
 public:
  explicit QueueSide(const QueueLayout& layout) : layout_(layout) {}

 protected:
  void next() noexcept {
    ++count_;
    if (++at_ == layout_.credits) at_ = 0;
  }
  QueueLayout layout_;
  std::uint64_t count_ = 0;  // messages committed, or released
  std::uint32_t at_ = 0;
};

class QueueProducer : public QueueSide {
 public:
  using QueueSide::QueueSide;

  bool has_credit() noexcept { return count_ - released_ < layout_.credits || count_ - released() < layout_.credits; }
  std::byte* slot() const noexcept { return layout_.data + at_ * layout_.data_stride; }
  // `place` null: the message is in the slot. Only with a credit.
  void commit(const std::byte* place, Bytes bytes, std::uint32_t tag) noexcept {
    SlotHead& head = layout_.head(at_);
    head.place = place;
    head.bytes = bytes.value;
    head.tag = tag;
    // release: payload and head before the flag; partner: the acquire in QueueConsumer::has_message().
    std::atomic_ref(head.sequence).store(count_ + 1, std::memory_order_release);
    next();
  }
  bool all_released() noexcept { return released_ == count_ || released() == count_; }

 private:
  std::uint64_t released() noexcept {
    // acquire: the consumer is done with the payload; partner: the release in QueueConsumer::release().
    released_ = std::atomic_ref(layout_.end->released).load(std::memory_order_acquire);
    return released_;
  }
  std::uint64_t released_ = 0;  // as last seen
};

class QueueConsumer : public QueueSide {
 public:
  using QueueSide::QueueSide;

  bool has_message() const noexcept {
    // acquire: the payload after the flag; partner: the release in QueueProducer::commit().
    return std::atomic_ref(layout_.head(at_).sequence).load(std::memory_order_acquire) == count_ + 1;
  }
  const SlotHead& head() const noexcept { return layout_.head(at_); }
  std::byte* slot() const noexcept { return layout_.data + at_ * layout_.data_stride; }
  void release() noexcept {
    next();
    // release: the last read of the payload before it; partner: the acquire in QueueProducer::released().
    std::atomic_ref(layout_.end->released).store(count_, std::memory_order_release);
  }
};

}  // namespace hoccl
