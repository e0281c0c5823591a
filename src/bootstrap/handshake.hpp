// How two processes that have never met find out that they belong together. The one who listens (a Door) greets first:
// protocol version and a hash of the secret. The one who visits answers with the secret and who it is, and is welcomed
// or refused with a reason. Used twice: at the rendezvous, and between neighbours of the tree. Anybody may knock at a
// door: strangers are dropped in silence and delay nobody. Read next: rendezvous.hpp.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "src/base/bytes.hpp"
#include "src/base/error.hpp"
#include "src/base/socket.hpp"
#include "src/bootstrap/unique_id.hpp"

namespace hoccl {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

constexpr std::uint16_t kProtocolVersion = 1;
constexpr std::uint32_t kProtocolMagic = 0x4c434348;  // "HCCL" in memory

enum class Kind : std::uint16_t { banner = 1, hello = 2, welcome = 3, refusal = 4, go = 5 };

// Opens each message of the handshake. Its layout is the same in all versions of the protocol.
struct MessageHead {
  std::uint32_t magic = kProtocolMagic;
  std::uint16_t version = kProtocolVersion;
  Kind kind{};
  std::uint32_t length = 0;  // of what follows
  std::uint32_t zero = 0;
  std::uint64_t token = 0;  // banner: hash of the secret; hello: the secret
};
static_assert(sizeof(MessageHead) == 24);
constexpr std::uint32_t kLongestMessage = 16384;

// No deadline is longer: 30 years, which no clock's type overflows on.
constexpr std::chrono::milliseconds kLongestDeadline{1'000'000'000'000};

// Milliseconds for poll(2) until `limit`, rounded up, 0 when it is over.
int milliseconds_until(TimePoint limit);

// "1.5 s"
std::string seconds_text(std::chrono::milliseconds time);

// Sends a whole message at once. False when it cannot be sent. All messages together fit an empty socket's memory.
bool post(Socket& socket, Kind kind, std::uint64_t token, std::span<const std::byte> payload) noexcept;
bool post_refusal(Socket& socket, Code code, const std::string& text);

// A message, or why there is none.
struct Received {
  enum class What { message, silence, closed, alien } what = What::silence;
  int error = 0;  // closed: errno, 0 for an orderly end
  MessageHead head;
  Blob payload;
};
Received receive(Socket& socket, TimePoint limit);
// Throws the Error that a refusal carries.
[[noreturn]] void throw_refusal(const Blob& payload);

// What a visitor says of itself.
struct Hello {
  int rank = 0;
  int size = 0;
  std::int64_t patience_ms = 0;   // how long it waits in all
  std::int64_t remaining_ms = 0;  // how much of that is left
  Contact contact;                // where it listens; empty when it does not
};

class Door {
 public:
  Door(Socket listener, std::uint64_t secret) : listener_(std::move(listener)), secret_(secret) {}

  struct Visitor {
    Socket socket;
    Hello hello;
  };

  // Lets in a connection that was made otherwise.
  void admit(Socket socket);
  // Adds what to wait for.
  void add_to(std::vector<pollfd>& waits) const;
  // When to look again even if nothing happens.
  TimePoint next_limit() const;
  // Takes new connections, reads on, drops strangers. Returns those who know the secret and speak our version.
  std::vector<Visitor> work();

 private:
  struct Guest {
    Socket socket;
    Blob read;
    TimePoint limit;
  };
  enum class State { waiting, dropped, complete };
  void take_connections();
  State read_on(Guest& guest);
  void judge(Guest& guest, std::vector<Visitor>& visitors);

  Socket listener_;
  std::uint64_t secret_;
  std::list<Guest> guests_;  // oldest first
  TimePoint pause_until_{};  // no new connections before: descriptors ran out
};

// Whom to visit, and how.
struct Visit {
  std::vector<Address> addresses;
  std::uint64_t secret = 0;
  Hello hello;
  std::string whom;      // for errors: "the rendezvous of the unique id", "rank 0"
  bool patient = false;  // the other may not listen yet: refusals are tried again until the limit
  TimePoint limit;
};
// Returns the connection on which we were welcomed. Throws the refusal, or Error{remote} naming all addresses tried.
Socket pay(const Visit& visit);
// The same over a connection that exists already.
Socket pay_over(Socket socket, const Visit& visit);

}  // namespace hoccl
