// How the streams of a link come about. The send end dials the receive end's listener, on one of its addresses after
// the other, and says which link and which stream of it the connection is for (Greeting, with a token that only the
// peer knows); the receive end answers, so that a stranger who listens at that address is not mistaken for the peer.
// Nothing here waits. Private to the tcp transport.
#pragma once

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "src/base/bytes.hpp"
#include "src/base/socket.hpp"
#include "transports/tcp/epoll.hpp"

namespace hoccl::tcp {

using Token = std::array<std::uint64_t, 2>;
Token random_token();

struct Greeting {
  static constexpr std::uint64_t kMagic = 0x3150435448484f43;
  std::uint64_t magic = kMagic;
  Token token{};
  std::uint32_t stream = 0, width = 0;
};
static_assert(sizeof(Greeting) == 32);

struct Answer {
  std::uint64_t magic = ~Greeting::kMagic;
  std::uint64_t proof = 0;  // hash of the token

  static Answer to(const Token& token) { return {~Greeting::kMagic, hash_bytes(std::as_bytes(std::span(token)))}; }
  bool operator==(const Answer&) const = default;
};

// Reads or writes a value that lies in memory, over several attempts.
class Transfer {
 public:
  enum class State { going_on, done, broken };
  State read(Socket& socket, std::span<std::byte> value) noexcept;
  State write(Socket& socket, std::span<const std::byte> value) noexcept;
  std::size_t bytes() const noexcept { return done_; }
  int error() const noexcept { return error_; }  // of `broken`; 0: the other side ended the connection

 private:
  State after(const Progress& progress, std::size_t whole) noexcept;
  std::size_t done_ = 0;
  int error_ = 0;
};

// One connection of the send end, until it is answered.
class Dial final : public EventTarget {
 public:
  enum class State { going_on, answered, refused };

  // Watched by `epoll`, so that its wait_fd shows progress.
  Dial(Epoll& epoll, const Address& to, const Greeting& greeting);
  ~Dial() override { epoll_.remove(socket_); }
  void on_events(std::uint32_t) noexcept override {}

  State advance() noexcept;
  // Why it was refused.
  std::string reason() const;
  // After `answered`: the connection, still watched.
  Socket take() noexcept { return std::move(socket_); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { connecting, greeting, listening, answered };
  State refused(int error) noexcept;

  Epoll& epoll_;
  Greeting greeting_;
  Answer answer_;
  Socket socket_;
  Phase phase_ = Phase::connecting;
  Transfer transfer_;
  Clock::time_point deadline_;
  int error_ = 0;
};

// A connection that somebody made to our listener, until it has said what it is for.
class Caller final : public EventTarget {
 public:
  enum class State { going_on, greeted, stranger };

  Caller(Epoll& epoll, Socket socket);
  ~Caller() override { epoll_.remove(socket_); }
  void on_events(std::uint32_t) noexcept override { readable_ = true; }

  State advance() noexcept;
  const Greeting& greeting() const noexcept { return greeting_; }
  // After `greeted`: answers and gives the connection up, still watched. An invalid socket when it has gone away.
  Socket accept() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  Epoll& epoll_;
  Socket socket_;
  Greeting greeting_;
  Transfer transfer_;
  bool readable_ = true;
  Clock::time_point deadline_;
};

}  // namespace hoccl::tcp
