// A connection between two neighbours in the tree of ranks, carrying frames: what is to be sent waits in memory until
// the socket takes it, what comes is cut into frames. Never blocks. Used under the lock of its bootstrap (tcp.cpp).
#pragma once

#include <cstdint>
#include <deque>
#include <span>

#include "src/base/bytes.hpp"
#include "src/base/socket.hpp"
#include "src/base/types.hpp"
#include "src/bootstrap/calls.hpp"

namespace hoccl {

enum class FrameKind : std::uint8_t {
  arrived,  // `rank` has begun call number `round`; goes to the neighbours, and on towards rank 0
  up,       // parcels on their way to the root of a subtree that holds sender and receiver
  down,     // parcels from there to their receivers
  late,     // `rank` has waited in vain: who knows who is missing in `round`? Goes to rank 0
  abort,    // it is over; the payload is the reason; goes to all ranks
  leave,    // `rank` is done; goes to all ranks
};

struct FrameHead {
  std::uint32_t length = 0;  // of the payload
  FrameKind kind{};
  Call call{};
  std::uint16_t zero = 0;
  std::uint32_t round = 0;
  std::int32_t rank = 0;
};
static_assert(sizeof(FrameHead) == 16);
constexpr std::uint32_t kLongestFrame = 1U << 30;

struct Frame {
  FrameHead head;
  Blob payload;
};

class Neighbour {
 public:
  Neighbour(int rank, Socket socket) : rank_(rank), socket_(std::move(socket)) { socket_.keep_alive(); }

  int rank() const { return rank_; }
  int fd() const { return socket_.fd(); }

  // Queues a frame and sends what the socket takes.
  void send(FrameHead head, std::span<const std::byte> payload);
  // True when nothing waits to be sent any more, or never will.
  bool flush() noexcept;
  // Reads what is there; false when the connection has ended, with the errno or 0 in error().
  bool read(std::deque<Frame>& into);
  int error() const { return error_; }
  bool open() const { return socket_.valid(); }
  void close() noexcept;
  // Ends in order: what was sent arrives, though the other may have sent what nobody reads.
  void finish() noexcept;

  std::deque<Frame> inbox;  // up and down frames that no call has taken yet
  bool left = false;        // it said that it leaves, so its end is no failure

 private:
  int rank_;
  Socket socket_;
  Blob out_;  // waits from sent_ on
  std::size_t sent_ = 0;
  FrameHead head_;  // of the frame being read, got_ bytes of which are there
  Blob payload_;
  std::size_t got_ = 0;
  bool broken_ = false;  // cannot send any more
  int error_ = 0;
};

}  // namespace hoccl
