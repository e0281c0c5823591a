// The data path of a link over `width` TCP streams: message k travels whole on stream k % width, after a head of 16
// bytes. Sending goes straight from the given memory; receiving goes straight into the slot. How the streams come about
// is in tcp.cpp. Private to the tcp transport. Assumes: one thread at a time.
#pragma once

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "src/base/socket.hpp"
#include "transports/tcp/epoll.hpp"
#include "transports/transport.hpp"

namespace hoccl::tcp {

// As it lies in memory; start-up has compared the versions of the ranks.
struct FrameHead {
  std::uint64_t bytes = 0;
  std::uint32_t tag = 0;
  std::uint32_t sequence = 0;  // low bits of the message's number: a stream out of step is an error, not garbage
};
static_assert(sizeof(FrameHead) == 16);

// Room for `count` messages of up to `bytes`, each on cache lines of its own. Not touched before use.
class SlotMemory {
 public:
  SlotMemory(int count, Bytes bytes);
  std::byte* slot(std::size_t i) const noexcept { return data_.get() + i * stride_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::size_t stride_;
  std::unique_ptr<std::byte, Free> data_;
};

// Why a link can move nothing any more. Kept as numbers on the data path, made into a text when asked for.
struct Failure {
  enum class Cause { none, closed, error, out_of_step, too_long };
  Cause cause = Cause::none;
  int stream = 0;
  int error = 0;            // errno, 0 for an orderly end
  std::uint64_t bytes = 0;  // too_long: what the head said
};

// What both ends know of the peer, for people.
struct Names {
  Rank peer{};
  Address remote;
  std::string interface;  // of the local address

  std::string route() const { return "tcp " + interface; }
  std::string text(const Failure& failure, Bytes slot) const;
};
Names names_of(const Socket& socket, Rank peer);

class SendStreams : public SendLink, private Direct {
 public:
  ~SendStreams() override;

  std::byte* reserve() noexcept override;
  void commit(Bytes bytes, std::uint32_t tag) noexcept override;
  bool drained() noexcept override;
  Direct* direct() noexcept override { return this; }
  std::string failure() const override { return names_.text(failure_, spec_.slot); }
  std::string route() const override { return names_.route(); }

 protected:
  SendStreams(const LinkSpec& spec, Epoll& epoll);

  struct Stream final : EventTarget {
    void on_events(std::uint32_t events) noexcept override;
    SendStreams* link = nullptr;
    Socket socket;
    bool open = false;       // has met its other end
    bool writable = false;   // the next write may do something
    bool closed = false;     // the other side is gone
    std::uint64_t next = 0;  // message that is being written
    std::size_t sent = 0;    // of its head and payload
  };
  std::vector<Stream>& streams() noexcept { return streams_; }
  // All streams have met their other ends.
  void open(const Names& names);

  const LinkSpec spec_;
  Epoll& epoll_;

 private:
  struct Message {
    FrameHead head;
    const std::byte* data = nullptr;
    bool busy = false;  // not all of it is in the kernel
  };
  bool ready() noexcept override;
  void publish(const void* data, Bytes bytes, std::uint32_t tag) noexcept override;

  std::size_t place(std::uint64_t message) const noexcept { return message % messages_.size(); }
  Stream& stream_of(std::uint64_t message) noexcept { return streams_[message % streams_.size()]; }
  void push(Stream& stream) noexcept;
  std::size_t gather(const Stream& stream, std::span<iovec> parts) noexcept;
  void advance(Stream& stream, std::size_t bytes) noexcept;
  void fail_link(const Stream& stream, const Progress& progress) noexcept;

  SlotMemory memory_;
  std::vector<Message> messages_;  // ring of spec.credits
  std::vector<Stream> streams_;
  std::uint64_t given_ = 0;  // messages committed or published
  int busy_ = 0;             // messages with `busy`
  Failure failure_;
  Names names_;
};

class ReceiveStreams : public ReceiveLink {
 public:
  ~ReceiveStreams() override;

  const Slot* front() noexcept override;
  void release() noexcept override;
  std::string failure() const override { return names_.text(failure_, spec_.slot); }
  std::string route() const override { return names_.route(); }

 protected:
  ReceiveStreams(const LinkSpec& spec, Epoll& epoll);

  // Nothing has come by stream `i`. A caller for a stream that has one already replaces it: its other end has given
  // the first one up.
  bool free(int i) const noexcept;
  // The other end's stream `i` has come; it is watched already.
  void attach(int i, Socket socket);
  bool complete() const noexcept;

  const LinkSpec spec_;
  Epoll& epoll_;

 private:
  // What is read beyond the part that is wanted: the next head, and whole small messages, so that these do not cost a
  // system call each. Copied on, hence small.
  static constexpr std::size_t kAhead = 4096;
  // After a message of up to this length the next head is read together with what follows it.
  static constexpr std::size_t kSmall = 2048;

  struct Stream final : EventTarget {
    void on_events(std::uint32_t events) noexcept override;
    Socket socket;
    bool readable = false;   // the next read may do something
    bool hangup = false;     // the end of the stream is there to be read
    bool closed = false;     // and has been read
    Progress end;            // how it ended
    bool small = true;       // the last message was
    std::uint64_t next = 0;  // message that is being read
    FrameHead head;
    std::size_t head_got = 0, body_got = 0;
    std::size_t ahead_begin = 0, ahead_end = 0;
    std::array<std::byte, kAhead> ahead;
  };
  struct Message {
    Slot slot;
    bool complete = false;
  };

  Message& message(std::uint64_t number) noexcept { return messages_[number % messages_.size()]; }
  int number_of(const Stream& stream) const noexcept { return static_cast<int>(&stream - streams_.data()); }
  void pull(Stream& stream) noexcept;
  bool eat(Stream& stream) noexcept;
  bool start_message(Stream& stream) noexcept;
  void read_once(Stream& stream) noexcept;

  SlotMemory memory_;
  std::vector<Message> messages_;  // ring of spec.credits
  std::vector<Stream> streams_;
  std::uint64_t released_ = 0;
  Failure failure_;
  Names names_;
};

}  // namespace hoccl::tcp
