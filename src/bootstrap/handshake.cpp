// Both sides of the handshake: the door that never waits for anybody, and the visitor who tries address after address
// until its time is over.
#include "src/bootstrap/handshake.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace hoccl {
namespace {

using namespace std::chrono_literals;
using Outcome = Progress::Outcome;

constexpr auto kSilenceAllowed = 10s;      // from connecting to a whole hello
constexpr std::size_t kMostGuests = 1000;  // who have not said hello yet
constexpr auto kSureOfRefusal =
    250ms;  // that long every address must have refused before an impatient visitor gives up

std::uint64_t public_token(std::uint64_t secret) { return hash_bytes(std::as_bytes(std::span(&secret, 1))); }

void put_hello(Writer& writer, const Hello& hello) {
  writer.put(hello.rank).put(hello.size).put(hello.patience_ms).put(hello.remaining_ms);
  put(writer, hello.contact);
}

Hello get_hello(const std::byte* data, std::size_t bytes) {
  Reader reader(std::span(data, bytes));
  Hello hello;
  hello.rank = reader.get<int>();
  hello.size = reader.get<int>();
  hello.patience_ms = reader.get<std::int64_t>();
  hello.remaining_ms = reader.get<std::int64_t>();
  hello.contact = get_contact(reader);
  return hello;
}

bool wait_for(const Socket& socket, short events, TimePoint limit) {
  while (true) {
    pollfd state{socket.fd(), events, 0};
    const int n = ::poll(&state, 1, milliseconds_until(limit));
    if (n > 0) return true;
    if (n == 0 && Clock::now() >= limit) return false;
    if (n < 0 && errno != EINTR) fail_errno("wait for a connection");
  }
}

// What one attempt at one address came to.
struct Attempt {
  Socket socket;         // valid: welcomed
  std::string failure;   // otherwise
  bool refused = false;  // somebody or the kernel said no, as opposed to silence
};

Attempt failed(std::string text, bool refused) { return {Socket(), std::move(text), refused}; }

// The text for a message that did not come.
std::string absence_text(const Received& received, std::string_view instead) {
  switch (received.what) {
    case Received::What::silence:
      return fmt::format("silent {}", instead);
    case Received::What::closed:
      return received.error == 0 ? fmt::format("closed the connection {}", instead)
                                 : fmt::format("{} {}", errno_text(received.error), instead);
    default:
      return "something else than HOCCL answers there";
  }
}

// From a connection just made to the welcome. `greeting_limit` is for the other's first words only.
Attempt introduce(Socket socket, const Visit& visit, TimePoint greeting_limit) {
  const Received banner = receive(socket, greeting_limit);
  if (banner.what != Received::What::message || banner.head.kind != Kind::banner)
    return failed(absence_text(banner, "instead of greeting"), banner.what != Received::What::silence);
  if (banner.head.token != public_token(visit.secret))
    return failed(banner.head.version == kProtocolVersion
                      ? std::string("answers for another unique id")
                      : fmt::format("answers for another unique id, in version {} of the start protocol (here: {})",
                                    banner.head.version, kProtocolVersion),
                  true);
  require(
      banner.head.version == kProtocolVersion, Code::invalid_usage,
      "{} speaks version {} of the start protocol, rank {} speaks version {}: all ranks need the same release of HOCCL",
      visit.whom, banner.head.version, visit.hello.rank, kProtocolVersion);
  Hello hello = visit.hello;
  hello.remaining_ms = std::chrono::ceil<std::chrono::milliseconds>(visit.limit - Clock::now()).count();
  Writer writer;
  put_hello(writer, hello);
  if (!post(socket, Kind::hello, visit.secret, writer.take()))
    return failed("closed the connection after greeting", true);
  const Received answer = receive(socket, visit.limit);
  if (answer.what != Received::What::message) return failed(absence_text(answer, "after our hello"), true);
  if (answer.head.kind == Kind::refusal) throw_refusal(answer.payload);
  if (answer.head.kind != Kind::welcome) return failed("something else than HOCCL answers there", true);
  return {std::move(socket), {}, false};
}

Attempt attempt(const Address& address, const Visit& visit, TimePoint limit) {
  Socket socket = Socket::start_connect(address);
  int error = 0;
  while (!socket.finish_connect(error))
    if (!wait_for(socket, POLLOUT, limit)) return failed("no answer", false);
  if (error != 0) return failed(errno_text(error), error == ECONNREFUSED);
  return introduce(std::move(socket), visit, limit);
}

[[noreturn]] void give_up(const Visit& visit, const std::vector<std::string>& failures, bool over) {
  std::string tried;
  for (std::size_t i = 0; i < visit.addresses.size(); ++i)
    tried += fmt::format("{}{} ({})", i == 0 ? "" : ", ", visit.addresses[i].text(),
                         failures[i].empty() ? "not tried yet" : failures[i]);
  fail(Code::remote, "rank {} could not reach {}{}: tried {}{}", visit.hello.rank, visit.whom,
       over ? fmt::format(" within {}", seconds_text(std::chrono::milliseconds(visit.hello.patience_ms))) : "", tried,
       over ? "" : "; has the process that listened there ended, or have all its ranks met already?");
}

}  // namespace

int milliseconds_until(TimePoint limit) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{} s", static_cast<double>(time.count()) / 1000);
}

bool post(Socket& socket, Kind kind, std::uint64_t token, std::span<const std::byte> payload) noexcept {
  MessageHead head;
  head.kind = kind;
  head.length = static_cast<std::uint32_t>(payload.size());
  head.token = token;
  const std::array<iovec, 2> parts{iovec{&head, sizeof head}, {const_cast<std::byte*>(payload.data()), payload.size()}};
  const Progress progress = socket.write_some(std::span<const iovec>(parts));
  return progress.outcome == Outcome::moved && progress.bytes == sizeof head + payload.size();
}

bool post_refusal(Socket& socket, Code code, const std::string& text) {
  Writer writer;
  writer.put(static_cast<int>(code)).put_text(std::string_view(text).substr(0, kLongestMessage / 2));
  return post(socket, Kind::refusal, 0, writer.take());
}

void throw_refusal(const Blob& payload) {
  Reader reader(payload);
  const int code = reader.get<int>();
  const std::string text = reader.get_text();
  throw Error(code == static_cast<int>(Code::invalid_usage) ? Code::invalid_usage : Code::remote, text);
}

Received receive(Socket& socket, TimePoint limit) {
  Received received;
  auto* const head = reinterpret_cast<std::byte*>(&received.head);
  std::size_t got = 0;
  while (true) {
    if (got >= sizeof(MessageHead)) {
      if (received.head.magic != kProtocolMagic || received.head.length > kLongestMessage) {
        received.what = Received::What::alien;
        return received;
      }
      received.payload.resize(received.head.length);
      if (got == sizeof(MessageHead) + received.head.length) {
        received.what = Received::What::message;
        return received;
      }
    }
    const std::span<std::byte> room = got < sizeof(MessageHead)
                                          ? std::span(head, sizeof(MessageHead)).subspan(got)
                                          : std::span(received.payload).subspan(got - sizeof(MessageHead));
    const Progress progress = socket.read_some(room);
    got += progress.bytes;
    if (progress.outcome == Outcome::closed || progress.outcome == Outcome::error) {
      received.what = Received::What::closed;
      received.error = progress.error;
      return received;
    }
    if (progress.outcome == Outcome::blocked && !wait_for(socket, POLLIN, limit)) return received;
  }
}

void Door::admit(Socket socket) {
  if (guests_.size() >= kMostGuests) guests_.pop_front();
  // A connection that cannot take the few bytes of a banner is dead.
  if (post(socket, Kind::banner, public_token(secret_), {}))
    guests_.push_back({std::move(socket), {}, Clock::now() + kSilenceAllowed});
}

void Door::add_to(std::vector<pollfd>& waits) const {
  if (Clock::now() >= pause_until_) waits.push_back({listener_.fd(), POLLIN, 0});
  for (const Guest& guest : guests_) waits.push_back({guest.socket.fd(), POLLIN, 0});
}

TimePoint Door::next_limit() const {
  TimePoint next = TimePoint::max();
  if (Clock::now() < pause_until_) next = pause_until_;
  if (!guests_.empty()) next = std::min(next, guests_.front().limit);
  return next;
}

void Door::take_connections() {
  if (Clock::now() < pause_until_) return;
  // Bounded, so that a flood of strangers cannot keep us from those who are in.
  for (int i = 0; i < 256; ++i) {
    int error = 0;
    Socket socket = listener_.accept(error);
    if (socket.valid()) {
      admit(std::move(socket));
    } else if (error == 0) {
      return;
    } else {  // out of descriptors: the one who has been silent longest makes room
      if (!guests_.empty()) guests_.pop_front();
      pause_until_ = Clock::now() + 20ms;
      return;
    }
  }
}

Door::State Door::read_on(Guest& guest) {
  std::array<std::byte, 2048> room;
  while (true) {
    if (guest.read.size() >= sizeof(MessageHead)) {
      MessageHead head;
      std::memcpy(&head, guest.read.data(), sizeof head);
      if (head.magic != kProtocolMagic || head.kind != Kind::hello || head.length > kLongestMessage)
        return State::dropped;
      if (guest.read.size() == sizeof head + head.length) return State::complete;
      if (guest.read.size() > sizeof head + head.length) return State::dropped;
    }
    const Progress progress = guest.socket.read_some(std::span(room));
    if (progress.outcome == Outcome::blocked) return Clock::now() < guest.limit ? State::waiting : State::dropped;
    if (progress.outcome != Outcome::moved) return State::dropped;
    guest.read.insert(guest.read.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(progress.bytes));
  }
}

// A whole hello: is its sender one of ours?
void Door::judge(Guest& guest, std::vector<Visitor>& visitors) {
  MessageHead head;
  std::memcpy(&head, guest.read.data(), sizeof head);
  if (head.version != kProtocolVersion) {
    post_refusal(guest.socket, Code::invalid_usage,
                 fmt::format("a joining rank speaks version {} of the start protocol, the others speak version {}: all "
                             "ranks need the same release of HOCCL",
                             head.version, kProtocolVersion));
    return;
  }
  if (head.token != secret_) return;
  try {
    const Hello hello = get_hello(guest.read.data() + sizeof head, head.length);
    visitors.push_back({std::move(guest.socket), hello});
  } catch (const Error&) {
    // Malformed: a stranger after all.
  }
}

std::vector<Door::Visitor> Door::work() {
  take_connections();
  std::vector<Visitor> visitors;
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const State state = read_on(*guest);
    if (state == State::complete) judge(*guest, visitors);
    guest = state == State::waiting ? std::next(guest) : guests_.erase(guest);
  }
  return visitors;
}

Socket pay(const Visit& visit) {
  const TimePoint start = Clock::now();
  std::vector<std::string> failures(visit.addresses.size());
  auto pause = 1ms;
  auto patience = 1000ms;  // with one address, before the next is tried
  while (true) {
    bool refused = true;
    for (std::size_t i = 0; i < visit.addresses.size(); ++i) {
      if (Clock::now() >= visit.limit) give_up(visit, failures, true);
      Attempt made = attempt(visit.addresses[i], visit, std::min(visit.limit, Clock::now() + patience));
      if (made.socket.valid()) return std::move(made.socket);
      failures[i] = std::move(made.failure);
      refused = refused && made.refused;
    }
    if (!visit.patient && refused && Clock::now() - start >= kSureOfRefusal) give_up(visit, failures, false);
    if (Clock::now() + pause >= visit.limit) give_up(visit, failures, true);
    ::poll(nullptr, 0, static_cast<int>(pause.count()));
    pause = std::min(2 * pause, 50ms);
    patience = std::min(2 * patience, 10000ms);
  }
}

Socket pay_over(Socket socket, const Visit& visit) {
  Attempt made = introduce(std::move(socket), visit, visit.limit);
  require(made.socket.valid(), Code::remote, "rank {} could not reach {}: {}", visit.hello.rank, visit.whom,
          made.failure);
  return std::move(made.socket);
}

}  // namespace hoccl
