// Addresses, this host's interfaces, and non-blocking TCP streams. Used by the bootstrap and the tcp transport; who
// waits does so with poll or epoll on fd(). Addresses are values that may travel between ranks as they lie in memory; a
// Socket owns its descriptor like a unique_ptr. Reading and writing never allocate, never raise SIGPIPE, never throw.
// Floor 0. Read next: src/bootstrap/tcp.cpp, transports/tcp/stream.cpp.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hoccl {

// An IPv4 or IPv6 address with a port, or none.
class Address {
 public:
  Address() = default;
  // "127.0.0.1:80", "[::1]:80", "[fe80::1%eth0]:80": numbers only, never asks a name server. Empty when malformed.
  static std::optional<Address> parse(std::string_view text);
  // All addresses of "name:port" (or of what parse() takes), asking the resolver, in its order. Throws
  // Error{invalid_argument} naming the text. May take seconds.
  static std::vector<Address> resolve(std::string_view text);
  // Does the text have the form that resolve() takes? Asks nobody.
  static bool well_formed(std::string_view text);
  // AF_INET or AF_INET6.
  static Address any(int family, std::uint16_t port);
  static Address loopback(int family, std::uint16_t port);
  // From a sockaddr; none for other families.
  static Address from(const void* sockaddr);

  // As parse() reads it; "none" for none.
  std::string text() const;
  explicit operator bool() const { return family_ != 0; }
  int family() const { return family_; }
  std::uint16_t port() const { return port_; }
  Address with_port(std::uint16_t port) const;
  // The interface that a link-local IPv6 address belongs to, 0 for none. A number of this host, senseless elsewhere.
  std::uint32_t scope() const { return scope_; }
  Address with_scope(std::uint32_t scope) const;
  bool is_loopback() const;
  bool is_link_local() const;
  bool operator==(const Address&) const = default;

  // Fills a sockaddr_storage and returns the length used.
  std::uint32_t store(void* sockaddr_storage) const;

 private:
  std::array<std::uint8_t, 16> octets_{};  // network order; IPv4 uses the first four
  std::uint32_t scope_ = 0;
  std::uint16_t family_ = 0;
  std::uint16_t port_ = 0;  // host order
};
static_assert(std::is_trivially_copyable_v<Address> && sizeof(Address) == 24);

// One address of one interface of this host that is up and running.
struct Interface {
  std::string name;
  Address address;  // port 0
  bool loopback = false;
};
// In the kernel's order. Throws Error{system}.
std::vector<Interface> interfaces();

// Equal for two processes exactly when they share a network namespace of one machine, so that 127.0.0.1 is the same
// place for both: the kernel's boot id and the namespace's inode.
std::string network_identity();

// What became of a read or a write.
struct Progress {
  enum class Outcome : std::uint8_t {
    moved,    // `bytes`, at least one
    blocked,  // nothing now; wait for fd()
    closed,   // the other side has ended the connection (in order, or by a reset)
    error,    // `error` says why
  };
  Outcome outcome = Outcome::blocked;
  int error = 0;  // errno; with `closed`: ECONNRESET, EPIPE, or 0 for an orderly end
  std::size_t bytes = 0;
};

class Socket {
 public:
  Socket() = default;
  // Takes over an open descriptor as it is.
  explicit Socket(int fd) noexcept : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;

  // Begins to connect; a refusal shows in finish_connect(). `from` binds this side (its port 0: any), so that the
  // stream uses that interface's address. All sockets made here are non-blocking, close-on-exec, without Nagle's delay.
  // Throws Error{system} when no socket can be made or bound.
  static Socket start_connect(const Address& to, const Address& from = {});
  // Call when fd() is writable, or now and then. True: connected, or failed with `error` (errno) not 0.
  bool finish_connect(int& error) noexcept;

  // Listens at `at` (port 0: any free one, see local()). An IPv6 wildcard takes IPv4 too. `share_port` lets several
  // sockets of one user hold the same port. Throws Error{system} naming the address.
  static Socket listen(const Address& at, bool share_port = false);
  // An invalid socket when nobody is waiting, or when `error` says that accepting failed.
  Socket accept(int& error) noexcept;

  Progress read_some(std::span<std::byte> into) noexcept;
  Progress write_some(std::span<const std::byte> from) noexcept;
  // The same over several pieces of memory in one system call.
  Progress read_some(std::span<const iovec> into) noexcept;
  Progress write_some(std::span<const iovec> from) noexcept;

  bool valid() const noexcept { return fd_ >= 0; }
  int fd() const noexcept { return fd_; }
  // None when not bound or not connected.
  Address local() const noexcept;
  Address remote() const noexcept;
  // Lets the kernel ask an idle peer now and then, so that a machine that went away shows as an error within a minute.
  void keep_alive() noexcept;
  // The other side reads the end after what was written before.
  void shut_write() noexcept;
  void close() noexcept;
  // Gives the descriptor up without closing it.
  int release() noexcept;

 private:
  int fd_ = -1;
  int connect_error_ = 0;  // of a connect that failed at once
};

}  // namespace hoccl
