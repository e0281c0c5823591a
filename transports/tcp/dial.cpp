// Dialling, greeting and answering: see dial.hpp. Every call tries once and returns.
#include "transports/tcp/dial.hpp"

#include <cerrno>
#include <random>

#include "src/base/error.hpp"

namespace hoccl::tcp {
namespace {

// An address that drops what is sent to it must not use up the time for the others.
constexpr std::chrono::seconds kDialTime{10};
// Who connects and says nothing is no rank of ours.
constexpr std::chrono::seconds kGreetingTime{30};

template <class T>
std::span<std::byte> memory_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

Token random_token() {
  std::random_device random;
  Token token;
  for (std::uint64_t& word : token) word = static_cast<std::uint64_t>(random()) << 32 | random();
  return token;
}

Transfer::State Transfer::after(const Progress& progress, std::size_t whole) noexcept {
  switch (progress.outcome) {
    case Progress::Outcome::moved:
      done_ += progress.bytes;
      return done_ == whole ? State::done : State::going_on;
    case Progress::Outcome::blocked:
      return State::going_on;
    case Progress::Outcome::closed:
    case Progress::Outcome::error:
      break;
  }
  error_ = progress.error;
  return State::broken;
}

Transfer::State Transfer::read(Socket& socket, std::span<std::byte> value) noexcept {
  return after(socket.read_some(value.subspan(done_)), value.size());
}

Transfer::State Transfer::write(Socket& socket, std::span<const std::byte> value) noexcept {
  return after(socket.write_some(value.subspan(done_)), value.size());
}

Dial::Dial(Epoll& epoll, const Address& to, const Greeting& greeting)
    : epoll_(epoll), greeting_(greeting), socket_(Socket::start_connect(to)), deadline_(Clock::now() + kDialTime) {
  epoll_.add(socket_, *this);
}

Dial::State Dial::refused(int error) noexcept {
  error_ = error;
  return State::refused;
}

Dial::State Dial::advance() noexcept {
  int error = 0;
  if (phase_ == Phase::connecting && socket_.finish_connect(error)) {
    if (error != 0) return refused(error);
    phase_ = Phase::greeting;
  }
  if (phase_ == Phase::greeting) {
    const Transfer::State sent = transfer_.write(socket_, memory_of(greeting_));
    if (sent == Transfer::State::broken) return refused(transfer_.error());
    if (sent == Transfer::State::done) {
      phase_ = Phase::listening;
      transfer_ = {};
    }
  }
  if (phase_ == Phase::listening) {
    const Transfer::State got = transfer_.read(socket_, memory_of(answer_));
    if (got == Transfer::State::broken) return refused(transfer_.error());
    if (got == Transfer::State::done) {
      if (answer_ != Answer::to(greeting_.token)) return refused(EPROTO);
      phase_ = Phase::answered;
    }
  }
  if (phase_ == Phase::answered) return State::answered;
  return Clock::now() < deadline_ ? State::going_on : refused(ETIMEDOUT);
}

std::string Dial::reason() const {
  if (phase_ == Phase::listening && error_ != ETIMEDOUT)
    return "somebody else listens there, or that end of the link is gone";
  return error_ == 0 ? "the connection was closed" : errno_text(error_);
}

Caller::Caller(Epoll& epoll, Socket socket)
    : epoll_(epoll), socket_(std::move(socket)), deadline_(Clock::now() + kGreetingTime) {
  epoll_.add(socket_, *this);
}

Caller::State Caller::advance() noexcept {
  if (readable_) {
    const Transfer::State got = transfer_.read(socket_, memory_of(greeting_));
    if (got == Transfer::State::broken) return State::stranger;
    const bool magic_known = transfer_.bytes() >= sizeof greeting_.magic;
    if (magic_known && greeting_.magic != Greeting::kMagic) return State::stranger;
    if (got == Transfer::State::done) return State::greeted;
    readable_ = false;
  }
  return Clock::now() < deadline_ ? State::going_on : State::stranger;
}

Socket Caller::accept() noexcept {
  // A new connection has room for 16 bytes.
  Answer answer = Answer::to(greeting_.token);
  const Progress progress = socket_.write_some(memory_of(answer));
  if (progress.outcome != Progress::Outcome::moved || progress.bytes != sizeof answer) return Socket();
  return std::move(socket_);
}

}  // namespace hoccl::tcp
