// Addresses, interfaces and non-blocking streams over the kernel's sockets. Everything that knows a sockaddr is here.
#include "src/base/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "src/base/error.hpp"

namespace hoccl {
namespace {

// "80" → 80; empty when it is no number of 16 bits.
std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return port;
}

// "eth0" or "2" → index of the interface; 0 when there is none.
std::uint32_t parse_scope(const std::string& text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return if_nametoindex(text.c_str());
}

// Host and port of "host:port" or "[host]:port".
std::optional<std::pair<std::string, std::string>> split_host_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size()) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return std::nullopt;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;  // an IPv6 address without brackets: its port cannot be told
  }
  return std::pair(std::string(host), std::string(text.substr(colon + 1)));
}

void set_option(int fd, int level, int option, int value, const char* name) {
  if (setsockopt(fd, level, option, &value, sizeof value) != 0) fail_errno(fmt::format("set socket option {}", name));
}

// A reset is the other side's doing, like an orderly end; all else is an error of this side or of the network.
Progress after_failure(int error) noexcept {
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return {Progress::Outcome::blocked, 0, 0};
  if (error == ECONNRESET || error == EPIPE) return {Progress::Outcome::closed, error, 0};
  return {Progress::Outcome::error, error, 0};
}

Progress after_read(ssize_t n) noexcept {
  if (n > 0) return {Progress::Outcome::moved, 0, static_cast<std::size_t>(n)};
  if (n == 0) return {Progress::Outcome::closed, 0, 0};
  return after_failure(errno);
}

Progress after_write(ssize_t n) noexcept {
  if (n > 0) return {Progress::Outcome::moved, 0, static_cast<std::size_t>(n)};
  if (n == 0) return {Progress::Outcome::blocked, 0, 0};
  return after_failure(errno);
}

Address name_of(int fd, int (*ask)(int, sockaddr*, socklen_t*)) noexcept {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (fd < 0 || ask(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return Address::from(&storage);
}

}  // namespace

std::optional<Address> Address::parse(std::string_view text) {
  const auto parts = split_host_port(text);
  if (!parts) return std::nullopt;
  const auto port = parse_port(parts->second);
  if (!port) return std::nullopt;
  std::string host = parts->first;
  Address address;
  address.port_ = *port;
  if (text.front() != '[') {
    if (inet_pton(AF_INET, host.c_str(), address.octets_.data()) != 1) return std::nullopt;
    address.family_ = AF_INET;
    return address;
  }
  if (const std::size_t percent = host.find('%'); percent != std::string::npos) {
    address.scope_ = parse_scope(host.substr(percent + 1));
    if (address.scope_ == 0) return std::nullopt;
    host.resize(percent);
  }
  if (inet_pton(AF_INET6, host.c_str(), address.octets_.data()) != 1) return std::nullopt;
  address.family_ = AF_INET6;
  return address;
}

bool Address::well_formed(std::string_view text) {
  const auto parts = split_host_port(text);
  if (!parts || parse_port(parts->second).value_or(0) == 0) return false;  // nobody can be reached at port 0
  if (text.front() == '[') return parse(text).has_value();
  return std::all_of(parts->first.begin(), parts->first.end(), [](char c) { return c > ' ' && c < 127; });
}

std::vector<Address> Address::resolve(std::string_view text) {
  if (const auto address = parse(text)) return {*address};
  require(well_formed(text), Code::invalid_argument,
          "\"{}\" is no address: expected host:port, a.b.c.d:port or [ipv6]:port", text);
  const auto parts = split_host_port(text);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(parts->first.c_str(), parts->second.c_str(), &hints, &found);
  require(error == 0, Code::invalid_argument, "cannot find the address of \"{}\": {}; check the name and the resolver",
          text, error == EAI_SYSTEM ? errno_text(errno) : std::string(gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next)
    if (const Address address = from(entry->ai_addr)) addresses.push_back(address);
  return addresses;
}

Address Address::any(int family, std::uint16_t port) {
  Address address;
  address.family_ = static_cast<std::uint16_t>(family);
  address.port_ = port;
  return address;
}

Address Address::loopback(int family, std::uint16_t port) {
  Address address = any(family, port);
  if (family == AF_INET6) {
    address.octets_[15] = 1;
  } else {
    address.octets_ = {127, 0, 0, 1};
  }
  return address;
}

Address Address::from(const void* raw) {
  Address address;
  sa_family_t family = 0;
  std::memcpy(&family, static_cast<const char*>(raw) + offsetof(sockaddr, sa_family), sizeof family);
  if (family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, raw, sizeof in);
    std::memcpy(address.octets_.data(), &in.sin_addr, 4);
    address.port_ = ntohs(in.sin_port);
    address.family_ = AF_INET;
  } else if (family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, raw, sizeof in);
    if (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {  // what an IPv6 listener says of an IPv4 peer
      std::memcpy(address.octets_.data(), in.sin6_addr.s6_addr + 12, 4);
      address.family_ = AF_INET;
    } else {
      std::memcpy(address.octets_.data(), &in.sin6_addr, 16);
      address.scope_ = in.sin6_scope_id;
      address.family_ = AF_INET6;
    }
    address.port_ = ntohs(in.sin6_port);
  }
  return address;
}

std::string Address::text() const {
  if (family_ == 0) return "none";
  char host[INET6_ADDRSTRLEN] = {};
  inet_ntop(family_, octets_.data(), host, sizeof host);
  if (family_ == AF_INET) return fmt::format("{}:{}", host, port_);
  if (scope_ == 0) return fmt::format("[{}]:{}", host, port_);
  char name[IF_NAMESIZE] = {};
  if (if_indextoname(scope_, name) == nullptr) return fmt::format("[{}%{}]:{}", host, scope_, port_);
  return fmt::format("[{}%{}]:{}", host, name, port_);
}

Address Address::with_port(std::uint16_t port) const {
  Address address = *this;
  address.port_ = port;
  return address;
}

Address Address::with_scope(std::uint32_t scope) const {
  Address address = *this;
  address.scope_ = scope;
  return address;
}

bool Address::is_loopback() const {
  return family_ == AF_INET ? octets_[0] == 127 : family_ == AF_INET6 && octets_ == loopback(AF_INET6, 0).octets_;
}

bool Address::is_link_local() const {
  if (family_ == AF_INET) return octets_[0] == 169 && octets_[1] == 254;
  return family_ == AF_INET6 && octets_[0] == 0xfe && (octets_[1] & 0xc0) == 0x80;
}

std::uint32_t Address::store(void* storage) const {
  std::memset(storage, 0, sizeof(sockaddr_storage));
  if (family_ == AF_INET) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port_);
    std::memcpy(&in.sin_addr, octets_.data(), 4);
    std::memcpy(storage, &in, sizeof in);
    return sizeof in;
  }
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(port_);
  in.sin6_scope_id = scope_;
  std::memcpy(&in.sin6_addr, octets_.data(), 16);
  std::memcpy(storage, &in, sizeof in);
  return sizeof in;
}

std::vector<Interface> interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) fail_errno("list the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_RUNNING) == 0)
      continue;
    const Address address = Address::from(entry->ifa_addr);
    if (address) found.push_back({entry->ifa_name, address, (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return found;
}

std::string network_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) {  // a kernel without it: the host's name is the next best
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    boot = name;
  }
  struct stat space {};
  if (stat("/proc/self/ns/net", &space) != 0) return fmt::format("{} net", boot);
  return fmt::format("{} net:{}:{}", boot, space.st_dev, space.st_ino);
}

Socket::Socket(Socket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), connect_error_(std::exchange(other.connect_error_, 0)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
    connect_error_ = std::exchange(other.connect_error_, 0);
  }
  return *this;
}

Socket Socket::start_connect(const Address& to, const Address& from) {
  require(static_cast<bool>(to), Code::internal, "connect to no address");
  Socket socket(::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) fail_errno(fmt::format("make a socket to connect to {}", to.text()));
  set_option(socket.fd(), IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  sockaddr_storage storage;
  if (from) {
    const socklen_t length = from.store(&storage);
    if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&storage), length) != 0)
      fail_errno(fmt::format("bind a socket to {} to connect to {}", from.text(), to.text()));
  }
  const socklen_t length = to.store(&storage);
  if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&storage), length) != 0 && errno != EINPROGRESS &&
      errno != EINTR)
    socket.connect_error_ = errno;
  return socket;
}

bool Socket::finish_connect(int& error) noexcept {
  error = connect_error_;
  if (error != 0) return true;
  pollfd state{fd_, POLLOUT, 0};
  if (::poll(&state, 1, 0) == 0) return false;
  socklen_t length = sizeof error;
  if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  // The kernel may have chosen the very port that we connect to: a socket connected to itself. Nobody listens there.
  if (error == 0 && local() == remote()) error = ECONNREFUSED;
  return true;
}

Socket Socket::listen(const Address& at, bool share_port) {
  Socket socket(::socket(at.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) fail_errno(fmt::format("make a socket to listen at {}", at.text()));
  set_option(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
  if (share_port) set_option(socket.fd(), SOL_SOCKET, SO_REUSEPORT, 1, "SO_REUSEPORT");
  if (at.family() == AF_INET6) set_option(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 0, "IPV6_V6ONLY");
  sockaddr_storage storage;
  const socklen_t length = at.store(&storage);
  if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&storage), length) != 0)
    fail_errno(fmt::format("bind a socket to {}", at.text()));
  if (::listen(socket.fd(), SOMAXCONN) != 0) fail_errno(fmt::format("listen at {}", at.text()));
  return socket;
}

Socket Socket::accept(int& error) noexcept {
  error = 0;
  const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    // The last two: a connection that went away before it was taken, which is nobody's failure.
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED && errno != EPROTO)
      error = errno;
    return Socket();
  }
  const int on = 1;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return Socket(fd);
}

Progress Socket::read_some(std::span<std::byte> into) noexcept {
  return after_read(::recv(fd_, into.data(), into.size(), 0));
}

Progress Socket::write_some(std::span<const std::byte> from) noexcept {
  return after_write(::send(fd_, from.data(), from.size(), MSG_NOSIGNAL));
}

Progress Socket::read_some(std::span<const iovec> into) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(into.data());
  message.msg_iovlen = into.size();
  return after_read(::recvmsg(fd_, &message, 0));
}

Progress Socket::write_some(std::span<const iovec> from) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(from.data());
  message.msg_iovlen = from.size();
  return after_write(::sendmsg(fd_, &message, MSG_NOSIGNAL));
}

Address Socket::local() const noexcept { return name_of(fd_, ::getsockname); }
Address Socket::remote() const noexcept { return name_of(fd_, ::getpeername); }

void Socket::keep_alive() noexcept {
  const auto set = [&](int level, int option, int value) {
    (void)setsockopt(fd_, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);  // seconds of silence before the first question
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 6);  // unanswered questions
}

void Socket::shut_write() noexcept {
  if (fd_ >= 0) (void)::shutdown(fd_, SHUT_WR);
}

void Socket::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

int Socket::release() noexcept { return std::exchange(fd_, -1); }

}  // namespace hoccl
