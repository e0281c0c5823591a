// Frames over a non-blocking stream.
#include "src/bootstrap/neighbour.hpp"

#include <array>

#include "src/base/error.hpp"

namespace hoccl {

using Outcome = Progress::Outcome;

void Neighbour::send(FrameHead head, std::span<const std::byte> payload) {
  if (!open() || broken_) return;
  require(payload.size() <= kLongestFrame, Code::invalid_argument, "{} bytes are too many for the start-up connections",
          payload.size());
  head.length = static_cast<std::uint32_t>(payload.size());
  const auto bytes = std::as_bytes(std::span(&head, 1));
  out_.insert(out_.end(), bytes.begin(), bytes.end());
  out_.insert(out_.end(), payload.begin(), payload.end());
  flush();
}

bool Neighbour::flush() noexcept {
  while (open() && !broken_ && sent_ < out_.size()) {
    const Progress progress = socket_.write_some(std::span<const std::byte>(out_).subspan(sent_));
    if (progress.outcome == Outcome::blocked) return false;
    sent_ += progress.bytes;
    // What the other wrote before it went away can still be read, so that reading decides what its end means.
    if (progress.outcome != Outcome::moved) broken_ = true;
  }
  out_.clear();
  sent_ = 0;
  return true;
}

bool Neighbour::read(std::deque<Frame>& into) {
  while (open()) {
    auto* const head = reinterpret_cast<std::byte*>(&head_);
    const std::span<std::byte> room = got_ < sizeof head_ ? std::span(head, sizeof head_).subspan(got_)
                                                          : std::span(payload_).subspan(got_ - sizeof head_);
    const Progress progress = socket_.read_some(room);
    if (progress.outcome == Outcome::blocked) return !broken_;
    if (progress.outcome != Outcome::moved) {
      error_ = progress.error;
      return false;
    }
    got_ += progress.bytes;
    if (got_ == sizeof head_) {
      require(head_.length <= kLongestFrame && head_.kind <= FrameKind::leave, Code::remote,
              "rank {} sent a malformed frame", rank_);
      payload_.resize(head_.length);
    }
    if (got_ >= sizeof head_ && got_ == sizeof head_ + head_.length) {
      into.push_back({head_, std::move(payload_)});
      payload_ = Blob();
      got_ = 0;
    }
  }
  return true;
}

void Neighbour::close() noexcept {
  socket_.close();
  out_.clear();
  sent_ = 0;
}

void Neighbour::finish() noexcept {
  if (!open()) return;
  socket_.shut_write();
  // Closing a socket with unread bytes resets the connection, and the other might lose what it has not read yet.
  std::array<std::byte, 4096> ignored;
  while (socket_.read_some(std::span(ignored)).outcome == Outcome::moved) {
  }
  close();
}

}  // namespace hoccl
