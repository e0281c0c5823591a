// A way to move bytes between two ranks, and one direction of one connection. Transports know nothing of plans or of
// each other; THE list of them is transports/all.cpp. The promises below are tested for each by
// tests/contract/transport_contract.cpp. Data path calls are noexcept: they answer moved, nothing, or failed().
//
// Threads: one thread at a time drives all links of a communicator. The two ends of a link belong to different
// communicators, mostly of different processes. A transport outlives its links.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/bytes.hpp"
#include "src/base/config.hpp"
#include "src/base/types.hpp"

namespace hoccl {

class Bell;

// Room for one message on its way. `data` stays valid and in place until commit or release.
struct Slot {
  std::byte* data = nullptr;
  Bytes bytes{0};         // receive end: length of the message
  std::uint32_t tag = 0;  // receive end: what the sender said the message belongs to
};

// Can two ends talk, and how well? Pure and symmetric: both ends compute the same from the two profiles.
struct Reach {
  bool yes = false;
  std::string reason;          // when not
  double delay_us = 0;         // expected, one message
  double gigabytes_per_s = 0;  // expected, one link alone
};

// What the two ends of a link agree on before it is opened; equal on both ends but for `peer`.
struct LinkSpec {
  Rank peer{};
  int peer_number = 0;  // tells the links between two ranks apart
  Bytes slot{0};        // longest message
  int credits = 2;      // messages in flight at least
  int width = 1;        // rails of a node that this link stands for; a network opens so many streams
};

struct Traffic {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;  // payload
};

class Link {
 public:
  virtual ~Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Wiring: each side says hello, the bootstrap swaps them, each side meets the other's hello. meet() may be called
  // again until it returns true (a network needs time); it throws Error when the other side cannot be reached.
  virtual Blob hello() = 0;
  virtual bool meet(std::span<const std::byte> theirs) = 0;

  // Empty, or why this link can move nothing any more.
  virtual std::string failure() const { return {}; }
  bool failed() const noexcept { return failed_; }
  // Where the payload goes, for people: "shm", "tcp eth0".
  virtual std::string route() const = 0;
  const Traffic& traffic() const noexcept { return traffic_; }

 protected:
  Link() = default;
  void count(Bytes bytes) noexcept { ++traffic_.messages, traffic_.bytes += bytes.value; }
  bool failed_ = false;
  Traffic traffic_;
};

// Moving without a slot: the message is memory that its owner leaves alone until drained. A capability: a send end has
// one or not.
class Direct {
 public:
  virtual ~Direct() = default;
  // True when publish() may be called once.
  virtual bool ready() noexcept = 0;
  virtual void publish(const void* data, Bytes bytes, std::uint32_t tag) noexcept = 0;
};

class SendLink : public Link {
 public:
  // The slot to fill next, or null when no credit is there. The same slot until commit.
  virtual std::byte* reserve() noexcept = 0;
  virtual void commit(Bytes bytes, std::uint32_t tag) noexcept = 0;
  // All that was given needs nothing more of this side: slots are on their way without further driving, published
  // memory may be written again.
  virtual bool drained() noexcept = 0;
  virtual Direct* direct() noexcept { return nullptr; }
  // Ends the link for good when its operation has failed: what was published and not released must not be read any
  // more. True once no peer reads it; call again until then.
  virtual bool take_back() noexcept { return true; }
};

class ReceiveLink : public Link {
 public:
  // The oldest message, or null. The same message until release.
  virtual const Slot* front() noexcept = 0;
  virtual void release() noexcept = 0;
  // Ends the link for good when its operation has failed: gives up the message that front() showed.
  virtual void let_go() noexcept {}
};

class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual std::string_view name() const noexcept = 0;
  // Describes this end; travels to every rank once.
  virtual Blob profile() = 0;
  virtual Reach reach(std::span<const std::byte> mine, std::span<const std::byte> theirs) const = 0;
  // `theirs` is the peer's profile. The link does nothing until both ends have met.
  virtual std::unique_ptr<SendLink> open_send(const LinkSpec& spec, std::span<const std::byte> theirs) = 0;
  virtual std::unique_ptr<ReceiveLink> open_receive(const LinkSpec& spec, std::span<const std::byte> theirs) = 0;

  // Moves what can be moved without waiting. True when anything may have changed. Costs nothing for memory transports.
  virtual bool poll() noexcept { return false; }
  // Readable when poll() has something to do; -1: peers ring the bell instead.
  virtual int wait_fd() const noexcept { return -1; }

 protected:
  Transport() = default;
};

// What a transport may know of the rank that it serves.
struct TransportContext {
  Bell* bell = nullptr;  // rung by peers of this machine; outlives the transport
  std::string host_id;   // equal for two ranks exactly when they are on one node
  std::string machine;   // equal for two ranks exactly when they run on one operating system (boot id, pid namespace)
};

struct TransportRow {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<Transport> (*make)(const TransportContext& context);
};
// In order of preference.
std::span<const TransportRow> all_transports();

}  // namespace hoccl
