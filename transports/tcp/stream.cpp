// Messages over TCP streams: see stream.hpp. On the sending side a write is tried when a message is given and whenever
// the socket becomes writable again; on the receiving side a read is tried when the oldest message is asked for and the
// socket is known to have something.
#include "transports/tcp/stream.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/error.hpp"
#include "src/base/queue.hpp"

namespace hoccl::tcp {

namespace {
// Messages that one system call may send.
constexpr std::size_t kBatch = 8;
}  // namespace

SlotMemory::SlotMemory(int count, Bytes bytes)
    : stride_(whole_lines(std::max<std::size_t>(size_of(bytes), 1))),
      data_(static_cast<std::byte*>(std::aligned_alloc(kCacheLine, static_cast<std::size_t>(count) * stride_))) {
  if (!data_) fail_errno(fmt::format("allocating {} slots of {} bytes for a link over tcp", count, stride_));
}

Names names_of(const Socket& socket, Rank peer) {
  Names names{peer, socket.remote(), "?"};
  const Address here = socket.local().with_port(0);
  for (const Interface& i : interfaces())
    if (i.address.with_scope(0) == here.with_scope(0)) names.interface = i.name;
  return names;
}

std::string Names::text(const Failure& failure, Bytes slot) const {
  const std::string what =
      fmt::format("tcp stream {} with rank {} at {} over {}", failure.stream, index(peer), remote.text(), interface);
  switch (failure.cause) {
    case Failure::Cause::none:
      return {};
    case Failure::Cause::closed:
      return fmt::format("{}: the other side closed the connection{}: that rank has failed, was killed or gave up",
                         what, failure.error != 0 ? ", " + errno_text(failure.error) : "");
    case Failure::Cause::error:
      return fmt::format("{}: {}", what, errno_text(failure.error));
    case Failure::Cause::out_of_step:
      return fmt::format("{}: a message came out of order; the two ranks disagree about the link", what);
    case Failure::Cause::too_long:
      return fmt::format("{}: a message of {} bytes came where {} is the most; the two ranks disagree about the link",
                         what, failure.bytes, slot.value);
  }
  return {};
}

namespace {
Failure ended(int stream, const Progress& progress) noexcept {
  return {progress.outcome == Progress::Outcome::error ? Failure::Cause::error : Failure::Cause::closed, stream,
          progress.error, 0};
}
}  // namespace

// --- sending

SendStreams::SendStreams(const LinkSpec& spec, Epoll& epoll)
    : spec_(spec),
      epoll_(epoll),
      memory_(spec.credits, spec.slot),
      messages_(static_cast<std::size_t>(spec.credits)),
      streams_(static_cast<std::size_t>(spec.width)) {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    streams_[i].link = this;
    streams_[i].next = i;
  }
}

SendStreams::~SendStreams() {
  for (Stream& s : streams_) {
    epoll_.remove(s.socket);
    s.socket.shut_write();  // the other side reads the end even when a forked process holds a copy of the descriptor
  }
}

void SendStreams::open(const Names& names) {
  names_ = names;
  for (Stream& s : streams_) s.open = s.writable = true;
}

void SendStreams::Stream::on_events(std::uint32_t events) noexcept {
  if ((events & EPOLLOUT) != 0) writable = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) closed = writable = true;
  if (open) link->push(*this);
}

bool SendStreams::ready() noexcept {
  const Message& message = messages_[place(given_)];
  if (message.busy) push(stream_of(given_ - messages_.size()));
  if (failed_ || message.busy) return false;
  const Stream& stream = stream_of(given_);
  if (stream.closed) fail_link(stream, {Progress::Outcome::closed, 0, 0});
  return !failed_;
}

std::byte* SendStreams::reserve() noexcept { return ready() ? memory_.slot(place(given_)) : nullptr; }

void SendStreams::commit(Bytes bytes, std::uint32_t tag) noexcept { publish(memory_.slot(place(given_)), bytes, tag); }

void SendStreams::publish(const void* data, Bytes bytes, std::uint32_t tag) noexcept {
  Message& message = messages_[place(given_)];
  message.head = {static_cast<std::uint64_t>(bytes.value), tag, static_cast<std::uint32_t>(given_)};
  message.data = static_cast<const std::byte*>(data);
  message.busy = true;
  ++busy_;
  Stream& stream = stream_of(given_);
  ++given_;
  count(bytes);
  push(stream);
}

bool SendStreams::drained() noexcept {
  if (busy_ == 0) return true;
  for (Stream& s : streams_) push(s);
  return busy_ == 0;
}

// Writes as much as the kernel takes.
void SendStreams::push(Stream& stream) noexcept {
  while (!failed_ && stream.writable && stream.next < given_) {
    std::array<iovec, 2 * kBatch> parts;
    const std::size_t used = gather(stream, parts);
    std::size_t asked = 0;
    for (std::size_t i = 0; i < used; ++i) asked += parts[i].iov_len;
    const Progress progress = stream.socket.write_some(std::span<const iovec>(parts.data(), used));
    switch (progress.outcome) {
      case Progress::Outcome::moved:
        advance(stream, progress.bytes);
        // Less than asked: the kernel is full and will say when it is not.
        if (progress.bytes < asked) stream.writable = false;
        break;
      case Progress::Outcome::blocked:
        stream.writable = false;
        break;
      case Progress::Outcome::closed:
      case Progress::Outcome::error:
        fail_link(stream, progress);
        break;
    }
  }
}

// What is left of the stream's current message, and the messages after it, up to a batch.
std::size_t SendStreams::gather(const Stream& stream, std::span<iovec> parts) noexcept {
  std::size_t used = 0, skip = stream.sent;
  for (std::uint64_t m = stream.next; m < given_ && used + 2 <= parts.size(); m += streams_.size()) {
    Message& message = messages_[place(m)];
    const std::size_t head = std::min(skip, sizeof(FrameHead)), body = skip - head;
    skip = 0;
    if (head < sizeof(FrameHead))
      parts[used++] = {reinterpret_cast<std::byte*>(&message.head) + head, sizeof(FrameHead) - head};
    if (body < message.head.bytes)
      parts[used++] = {const_cast<std::byte*>(message.data) + body, message.head.bytes - body};
  }
  return used;
}

void SendStreams::advance(Stream& stream, std::size_t bytes) noexcept {
  stream.sent += bytes;
  while (stream.next < given_) {
    Message& message = messages_[place(stream.next)];
    const std::size_t whole = sizeof(FrameHead) + message.head.bytes;
    if (stream.sent < whole) return;
    stream.sent -= whole;
    message.busy = false;
    --busy_;
    stream.next += streams_.size();
  }
}

void SendStreams::fail_link(const Stream& stream, const Progress& progress) noexcept {
  failed_ = true;
  failure_ = ended(static_cast<int>(&stream - streams_.data()), progress);
}

// --- receiving

ReceiveStreams::ReceiveStreams(const LinkSpec& spec, Epoll& epoll)
    : spec_(spec),
      epoll_(epoll),
      memory_(spec.credits, spec.slot),
      messages_(static_cast<std::size_t>(spec.credits)),
      streams_(static_cast<std::size_t>(spec.width)) {
  for (std::size_t i = 0; i < messages_.size(); ++i) messages_[i].slot.data = memory_.slot(i);
  for (std::size_t i = 0; i < streams_.size(); ++i) streams_[i].next = i;
}

ReceiveStreams::~ReceiveStreams() {
  for (Stream& s : streams_) {
    epoll_.remove(s.socket);
    s.socket.shut_write();  // as in ~SendStreams
  }
}

bool ReceiveStreams::free(int i) const noexcept {
  const Stream& stream = streams_[static_cast<std::size_t>(i)];
  return stream.next < streams_.size() && stream.head_got == 0;
}

void ReceiveStreams::attach(int i, Socket socket) {
  Stream& stream = streams_[static_cast<std::size_t>(i)];
  epoll_.remove(stream.socket);
  stream.socket = std::move(socket);
  stream.hangup = stream.closed = false;
  stream.readable = true;
  epoll_.hand_over(stream.socket, stream);
  if (complete()) names_ = names_of(stream.socket, spec_.peer);
}

bool ReceiveStreams::complete() const noexcept {
  return std::all_of(streams_.begin(), streams_.end(), [](const Stream& s) { return s.socket.valid(); });
}

void ReceiveStreams::Stream::on_events(std::uint32_t events) noexcept {
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) hangup = true;
  if ((events & EPOLLIN) != 0 || hangup) readable = !closed;
}

const Slot* ReceiveStreams::front() noexcept {
  Message& oldest = message(released_);
  if (oldest.complete) return &oldest.slot;
  for (Stream& s : streams_) pull(s);
  if (oldest.complete) return &oldest.slot;
  // The end of a stream matters once something is wanted that can only come by it.
  const Stream& bringer = streams_[released_ % streams_.size()];
  if (bringer.closed && !failed_) {
    failed_ = true;
    failure_ = ended(number_of(bringer), bringer.end);
  }
  return nullptr;
}

void ReceiveStreams::release() noexcept {
  Message& oldest = message(released_);
  count(oldest.slot.bytes);
  oldest.complete = false;
  ++released_;
}

// Reads while there is something to read and a slot to put it.
void ReceiveStreams::pull(Stream& stream) noexcept {
  while (!failed_ && eat(stream) && stream.readable) read_once(stream);
}

// Uses up what was read ahead. False when no slot is free, or the link has failed.
bool ReceiveStreams::eat(Stream& stream) noexcept {
  const auto take = [&stream](std::byte* to, std::size_t wanted) {
    const std::size_t n = std::min(wanted, stream.ahead_end - stream.ahead_begin);
    if (n != 0) std::memcpy(to, stream.ahead.data() + stream.ahead_begin, n);
    stream.ahead_begin += n;
    return n;
  };
  while (stream.next < released_ + messages_.size()) {
    if (stream.head_got < sizeof(FrameHead)) {
      stream.head_got +=
          take(reinterpret_cast<std::byte*>(&stream.head) + stream.head_got, sizeof(FrameHead) - stream.head_got);
      if (stream.head_got < sizeof(FrameHead)) return true;
    }
    if (stream.body_got == 0 && !start_message(stream)) return false;
    Message& m = message(stream.next);
    stream.body_got += take(m.slot.data + stream.body_got, stream.head.bytes - stream.body_got);
    if (stream.body_got < stream.head.bytes) return true;
    m.complete = true;
    stream.small = stream.head.bytes <= kSmall;
    stream.head_got = stream.body_got = 0;
    stream.next += streams_.size();
  }
  return false;
}

// The head is there: is it one that can be? May be asked again before the first byte of the payload has come.
bool ReceiveStreams::start_message(Stream& stream) noexcept {
  Failure::Cause cause = Failure::Cause::none;
  if (stream.head.sequence != static_cast<std::uint32_t>(stream.next)) cause = Failure::Cause::out_of_step;
  if (stream.head.bytes > size_of(spec_.slot)) cause = Failure::Cause::too_long;
  if (cause != Failure::Cause::none) {
    failed_ = true;
    failure_ = {cause, number_of(stream), 0, stream.head.bytes};
    return false;
  }
  Slot& slot = message(stream.next).slot;
  slot.bytes = Bytes(static_cast<std::int64_t>(stream.head.bytes));
  slot.tag = stream.head.tag;
  return true;
}

// One system call: the rest of the head or of the payload to where it belongs, and what follows it to `ahead`, which is
// empty here.
void ReceiveStreams::read_once(Stream& stream) noexcept {
  const bool in_head = stream.head_got < sizeof(FrameHead);
  const iovec wanted =
      in_head ? iovec{reinterpret_cast<std::byte*>(&stream.head) + stream.head_got, sizeof(FrameHead) - stream.head_got}
              : iovec{message(stream.next).slot.data + stream.body_got, stream.head.bytes - stream.body_got};
  const bool small = in_head ? stream.small : stream.head.bytes <= kSmall;
  const std::size_t beyond = small ? kAhead : in_head ? 0 : sizeof(FrameHead);
  const std::array<iovec, 2> parts{wanted, iovec{stream.ahead.data(), beyond}};

  const Progress progress = stream.socket.read_some(std::span<const iovec>(parts));
  if (progress.outcome != Progress::Outcome::moved) {
    stream.readable = false;
    stream.closed = progress.outcome != Progress::Outcome::blocked;
    stream.end = progress;
    return;
  }
  const std::size_t direct = std::min(progress.bytes, wanted.iov_len);
  (in_head ? stream.head_got : stream.body_got) += direct;
  stream.ahead_begin = 0;
  stream.ahead_end = progress.bytes - direct;
  // Less than asked: nothing is left, and more will be reported; but a reported end must still be read.
  if (progress.bytes < wanted.iov_len + beyond && !stream.hangup) stream.readable = false;
}

}  // namespace hoccl::tcp
