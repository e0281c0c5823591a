// The tcp transport: one listener and one epoll for all links of a rank. The send end of a link dials the receive end
// (dial.hpp) once for each stream; from then on stream.hpp moves the messages. wait_fd() is readable whenever a socket
// has news; poll() hands the news out. Assumes: the transport outlives its links.
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "src/base/error.hpp"
#include "transports/tcp/dial.hpp"
#include "transports/tcp/epoll.hpp"
#include "transports/tcp/stream.hpp"
#include "transports/transport.hpp"

namespace hoccl {

std::unique_ptr<Transport> make_tcp(const TransportContext& context);

namespace tcp {
namespace {

struct Profile {
  std::string network;  // network_identity()
  std::uint16_t port = 0;
  std::vector<Address> addresses;  // where the listener can be found from other machines, best first; with port

  Blob write() const {
    Writer writer;
    writer.put_text(network).put(port).put(static_cast<std::uint32_t>(addresses.size()));
    for (const Address& a : addresses) writer.put(a);
    return writer.take();
  }
  static Profile read(std::span<const std::byte> bytes) {
    Reader reader(bytes);
    Profile p;
    p.network = reader.get_text();
    p.port = reader.get<std::uint16_t>();
    for (auto n = reader.get<std::uint32_t>(); n > 0; --n) p.addresses.push_back(reader.get<Address>());
    return p;
  }
  bool has(int family) const {
    return std::any_of(addresses.begin(), addresses.end(), [=](const Address& a) { return a.family() == family; });
  }
  std::string text() const {
    std::string list;
    for (const Address& a : addresses) list += (list.empty() ? "" : ", ") + a.text();
    return list.empty() ? "none but loopback" : list;
  }
};

// Where to dial `theirs` from here, in turn.
std::vector<Address> ways(const Profile& mine, const Profile& theirs) {
  if (mine.network == theirs.network)
    return {Address::loopback(AF_INET, theirs.port), Address::loopback(AF_INET6, theirs.port)};
  std::vector<Address> list;
  for (const Address& a : theirs.addresses)
    if (mine.has(a.family())) list.push_back(a);
  return list;
}

// IPv4 first, each kind in the kernel's order. Link-local IPv6 addresses mean nothing on another machine.
std::vector<Address> addresses_of(const Socket& listener) {
  const std::uint16_t port = listener.local().port();
  const bool both = listener.local().family() == AF_INET6;
  std::vector<Address> v4, v6;
  for (const Interface& i : interfaces()) {
    if (i.loopback || i.address.is_loopback()) continue;
    if (i.address.family() == AF_INET) v4.push_back(i.address.with_port(port));
    if (i.address.family() == AF_INET6 && both && !i.address.is_link_local()) v6.push_back(i.address.with_port(port));
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  return v4;
}

Socket listen_anywhere() {
  try {
    return Socket::listen(Address::any(AF_INET6, 0));
  } catch (const Error&) {  // a kernel without IPv6
    return Socket::listen(Address::any(AF_INET, 0));
  }
}

class TcpReceive;

class Tcp final : public Transport, private EventTarget {
 public:
  Tcp()
      : listener_(listen_anywhere()), profile_{network_identity(), listener_.local().port(), addresses_of(listener_)} {
    epoll_.add(listener_, *this);
  }
  ~Tcp() override { epoll_.remove(listener_); }

  std::string_view name() const noexcept override { return "tcp"; }
  Blob profile() override { return profile_.write(); }
  Reach reach(std::span<const std::byte> mine, std::span<const std::byte> theirs) const override;
  std::unique_ptr<SendLink> open_send(const LinkSpec& spec, std::span<const std::byte> theirs) override;
  std::unique_ptr<ReceiveLink> open_receive(const LinkSpec& spec, std::span<const std::byte> theirs) override;
  bool poll() noexcept override;
  int wait_fd() const noexcept override { return epoll_.fd(); }

  Epoll& epoll() noexcept { return epoll_; }
  // Connections that greet with `token` are for `link`.
  void expect(const Token& token, TcpReceive& link) { expected_.emplace(token, &link); }
  void forget(const Token& token) noexcept { expected_.erase(token); }
  // Throws when the listener cannot accept.
  void check_listener();

 private:
  void on_events(std::uint32_t) noexcept override { waiting_ = true; }
  void accept_callers() noexcept;
  void hear_callers() noexcept;
  void seat(Caller& caller) noexcept;

  Epoll epoll_;
  Socket listener_;
  Profile profile_;
  bool waiting_ = false;  // somebody may wait at the listener
  int accept_error_ = 0;
  std::vector<std::unique_ptr<Caller>> callers_;  // oldest first
  std::map<Token, TcpReceive*> expected_;
};

class TcpSend final : public SendStreams {
 public:
  TcpSend(const LinkSpec& spec, Tcp& owner, std::vector<Address> addresses)
      : SendStreams(spec, owner.epoll()), owner_(owner), addresses_(std::move(addresses)) {}

  Blob hello() override { return {}; }
  bool meet(std::span<const std::byte> theirs) override;

 private:
  void dial(const Token& token);
  bool connect_all();

  Tcp& owner_;
  std::vector<Address> addresses_;
  std::size_t address_ = 0;                   // in use
  std::string tried_;                         // for people: addresses that did not do, and why
  std::vector<std::unique_ptr<Dial>> dials_;  // one for each stream, all to one address
  bool met_ = false;
};

class TcpReceive final : public ReceiveStreams {
 public:
  TcpReceive(const LinkSpec& spec, Tcp& owner)
      : ReceiveStreams(spec, owner.epoll()), owner_(owner), token_(random_token()) {
    owner_.expect(token_, *this);
  }
  ~TcpReceive() override { owner_.forget(token_); }

  Blob hello() override { return Writer().put(token_).take(); }
  bool meet(std::span<const std::byte>) override {
    owner_.poll();
    if (complete()) return true;
    owner_.check_listener();
    return false;
  }
  bool wants(const Greeting& greeting) const {
    return greeting.width == static_cast<std::uint32_t>(spec_.width) && greeting.stream < greeting.width &&
           free(static_cast<int>(greeting.stream));
  }
  void seat(const Greeting& greeting, Socket socket) { attach(static_cast<int>(greeting.stream), std::move(socket)); }

 private:
  Tcp& owner_;
  Token token_;
};

// --- the send end

bool TcpSend::meet(std::span<const std::byte> theirs) {
  if (met_) return true;
  const Token token = Reader(theirs).get<Token>();
  owner_.poll();
  while (address_ < addresses_.size()) {
    std::string why;
    try {
      if (dials_.empty()) dial(token);
      met_ = connect_all();
      return met_;
    } catch (const Error& error) {
      why = error.what();
    }
    tried_ += fmt::format("{}{} ({})", tried_.empty() ? "" : ", ", addresses_[address_].text(), why);
    dials_.clear();
    ++address_;
  }
  fail(Code::remote, "linking to rank {} over tcp: no connection; tried {}. Is a firewall between the nodes?",
       index(spec_.peer), tried_.empty() ? "nothing, as no address of it is of a kind that this rank has" : tried_);
}

void TcpSend::dial(const Token& token) {
  Greeting greeting;
  greeting.token = token;
  greeting.width = static_cast<std::uint32_t>(spec_.width);
  for (; greeting.stream < greeting.width; ++greeting.stream)
    dials_.push_back(std::make_unique<Dial>(epoll_, addresses_[address_], greeting));
}

// True when all have been answered. Throws Error with the reason when one was refused.
bool TcpSend::connect_all() {
  bool all = true;
  for (std::size_t i = 0; i < dials_.size(); ++i) {
    if (streams()[i].socket.valid()) continue;
    const Dial::State state = dials_[i]->advance();
    require(state != Dial::State::refused, Code::remote, "{}", dials_[i]->reason());
    if (state != Dial::State::answered) all = false;
  }
  if (!all) return false;
  for (std::size_t i = 0; i < dials_.size(); ++i) {
    streams()[i].socket = dials_[i]->take();
    epoll_.hand_over(streams()[i].socket, streams()[i]);
  }
  dials_.clear();
  open(names_of(streams()[0].socket, spec_.peer));
  return true;
}

// --- the transport

Reach Tcp::reach(std::span<const std::byte> mine, std::span<const std::byte> theirs) const {
  const Profile a = Profile::read(mine), b = Profile::read(theirs);
  // Expected, for choosing: two system calls and a switch of threads; one core's copying twice, or a fair network.
  if (a.network == b.network) return Reach{true, {}, 15, 2};
  if ((a.has(AF_INET) && b.has(AF_INET)) || (a.has(AF_INET6) && b.has(AF_INET6))) return Reach{true, {}, 30, 1};
  // In an order that does not depend on the end that asks.
  std::string first = a.text(), second = b.text();
  if (second < first) std::swap(first, second);
  return Reach{false, fmt::format("no common kind of address (one rank has {}; the other {})", first, second), 0, 0};
}

std::unique_ptr<SendLink> Tcp::open_send(const LinkSpec& spec, std::span<const std::byte> theirs) {
  return std::make_unique<TcpSend>(spec, *this, ways(profile_, Profile::read(theirs)));
}

std::unique_ptr<ReceiveLink> Tcp::open_receive(const LinkSpec& spec, std::span<const std::byte>) {
  return std::make_unique<TcpReceive>(spec, *this);
}

bool Tcp::poll() noexcept {
  const bool news = epoll_.dispatch();
  if (waiting_) accept_callers();
  if (!callers_.empty()) hear_callers();
  return news;
}

void Tcp::check_listener() {
  if (accept_error_ == 0) return;
  fail(Code::system, "accepting connections of other ranks at port {}: {}; allow more open files (ulimit -n)",
       profile_.port, errno_text(std::exchange(accept_error_, 0)));
}

void Tcp::accept_callers() noexcept {
  // Whoever connects and says nothing costs a descriptor; so many, and the oldest must go.
  constexpr std::size_t kMostCallers = 1024;
  while (true) {
    Socket socket = listener_.accept(accept_error_);
    if (!socket.valid()) break;
    if (callers_.size() == kMostCallers) callers_.erase(callers_.begin());
    try {
      callers_.push_back(std::make_unique<Caller>(epoll_, std::move(socket)));
    } catch (const Error&) {
      accept_error_ = ENOMEM;
      break;
    }
  }
  waiting_ = accept_error_ != 0;  // then the next poll tries again: the kernel does not repeat what it has said
}

void Tcp::hear_callers() noexcept {
  std::erase_if(callers_, [this](const std::unique_ptr<Caller>& caller) {
    const Caller::State state = caller->advance();
    if (state == Caller::State::greeted) seat(*caller);
    return state != Caller::State::going_on;
  });
}

void Tcp::seat(Caller& caller) noexcept {
  const auto link = expected_.find(caller.greeting().token);
  if (link == expected_.end() || !link->second->wants(caller.greeting())) return;
  Socket socket = caller.accept();
  if (!socket.valid()) return;
  try {
    link->second->seat(caller.greeting(), std::move(socket));
  } catch (const Error&) {
    accept_error_ = ENOMEM;  // the link stays incomplete and reports it
  }
}

}  // namespace
}  // namespace tcp

std::unique_ptr<Transport> make_tcp(const TransportContext&) { return std::make_unique<tcp::Tcp>(); }

}  // namespace hoccl
