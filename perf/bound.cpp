// See bound.hpp. Stream k of a node is carried by its local rank k mod (ranks of the node), between the same local
// ranks of neighbouring nodes. Addresses go round by an all-gather of the library; the streams are sockets of our own.
#include "perf/bound.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace perf {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kWaitMs = 60'000;  // no byte for so long: the other end is gone
constexpr std::size_t kPiece = 256 << 10;
constexpr std::size_t kCopyBytes = 32 << 20;  // by each rank; more than caches hold

[[noreturn]] void die_errno(const char* tried) {
  die(std::string("measuring the bound: ") + tried + ": " + std::strerror(errno));
}

// Where a rank can be reached, as it travels.
struct Address {
  char machine[64];  // boot id and network namespace: equal when loopback leads there
  char namespace_[64];
  in_addr ip;
  in_port_t port;
  int node, local, locals;
};

in_addr first_outside_address() {
  in_addr found{htonl(INADDR_LOOPBACK)};
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* a = list; a != nullptr; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || a->ifa_addr->sa_family != AF_INET) continue;
    if ((a->ifa_flags & IFF_UP) == 0 || (a->ifa_flags & IFF_LOOPBACK) != 0) continue;
    sockaddr_in in{};
    std::memcpy(&in, a->ifa_addr, sizeof in);
    found = in.sin_addr;
    break;
  }
  freeifaddrs(list);
  return found;
}

Address my_address(const Place& place, in_port_t port) {
  Address a{};
  std::ifstream("/proc/sys/kernel/random/boot_id").getline(a.machine, sizeof a.machine);
  const ssize_t length = readlink("/proc/self/ns/net", a.namespace_, sizeof a.namespace_ - 1);
  if (length < 0) die_errno("reading the name of the network namespace");
  a.ip = first_outside_address();
  a.port = port;
  a.node = place.node;
  a.local = place.local;
  a.locals = place.locals;
  return a;
}

bool reachable_by_loopback(const Address& a, const Address& b) {
  return std::strncmp(a.machine, b.machine, sizeof a.machine) == 0 &&
         std::strncmp(a.namespace_, b.namespace_, sizeof a.namespace_) == 0;
}

void wait_for(std::vector<pollfd>& waits) {
  int ready = 0;
  do ready = poll(waits.data(), waits.size(), kWaitMs);
  while (ready < 0 && errno == EINTR);
  if (ready < 0) die_errno("waiting for a stream");
  if (ready == 0) die("measuring the bound: nothing came or went for a minute");
}

void make_nonblocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) die_errno("setting up a stream");
}

}  // namespace

struct Bound::Carrier {
  Place place;
  int listener = -1;
  std::vector<int> out, in;                   // sockets
  std::vector<std::size_t> to_send, to_take;  // bytes left of the measurement going on
  Address address{};
};

Bound::Bound(const Crew& crew, int streams) : crew_(crew), streams_(std::max(streams, 1)) {
  nodes_ = crew.place(0).nodes;
  for (int i = 0; i < crew.ranks(); ++i) carriers_.emplace_back().place = crew.place(i);
  const std::size_t room = nodes_ > 1 ? kPiece : kCopyBytes;
  from_.resize(room, std::byte{1});
  to_.resize(room);
  if (nodes_ > 1) connect_all();
}

Bound::~Bound() {
  for (const Carrier& c : carriers_) {
    for (const int fd : c.out) close(fd);
    for (const int fd : c.in) close(fd);
    if (c.listener >= 0) close(c.listener);
  }
}

void Bound::connect_all() {
  std::vector<Address> mine;
  for (Carrier& c : carriers_) {
    c.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    socklen_t length = sizeof any;
    if (c.listener < 0 || bind(c.listener, reinterpret_cast<sockaddr*>(&any), length) != 0 ||
        listen(c.listener, 64) != 0 || getsockname(c.listener, reinterpret_cast<sockaddr*>(&any), &length) != 0)
      die_errno("listening");
    c.address = my_address(c.place, any.sin_port);
    mine.push_back(c.address);
  }
  const std::vector<Address> all = crew_.gather(mine);
  for (Carrier& c : carriers_) {
    const auto next = std::find_if(all.begin(), all.end(), [&](const Address& a) {
      return a.node == (c.place.node + 1) % nodes_ && a.local == c.place.local;
    });
    for (int k = c.place.local; k < streams_ && next != all.end(); k += c.place.locals) {
      const int fd = c.out.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = next->port;
      to.sin_addr = next->ip;
      if (reachable_by_loopback(c.address, *next)) to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) die_errno("connecting a stream");
      make_nonblocking(fd);
    }
  }
  crew_.meet();  // everybody's connections are in the listeners' queues now
  for (Carrier& c : carriers_) {
    make_nonblocking(c.listener);
    for (int fd; (fd = accept4(c.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) c.in.push_back(fd);
    c.to_send.resize(c.out.size());
    c.to_take.resize(c.in.size());
  }
}

double Bound::rate(long long node_bytes) { return nodes_ > 1 ? network_rate(node_bytes) : memory_rate(); }

double Bound::network_rate(long long node_bytes) {
  const std::size_t each =
      static_cast<std::size_t>(std::clamp(node_bytes, 8LL << 20, 128LL << 20)) / static_cast<std::size_t>(streams_);
  for (Carrier& c : carriers_) {
    std::fill(c.to_send.begin(), c.to_send.end(), each);
    std::fill(c.to_take.begin(), c.to_take.end(), each);
  }
  crew_.meet();
  const Clock::time_point begin = Clock::now();
  for (bool left = true; left;) {
    std::vector<pollfd> waits;
    for (Carrier& c : carriers_) {
      for (std::size_t k = 0; k < c.out.size(); ++k) {
        if (c.to_send[k] == 0) continue;
        const ssize_t n = send(c.out[k], from_.data(), std::min(c.to_send[k], kPiece), MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) die_errno("sending");
        if (n > 0) c.to_send[k] -= static_cast<std::size_t>(n);
        if (c.to_send[k] != 0) waits.push_back({c.out[k], POLLOUT, 0});
      }
      for (std::size_t k = 0; k < c.in.size(); ++k) {
        if (c.to_take[k] == 0) continue;
        const ssize_t n = recv(c.in[k], to_.data(), std::min(c.to_take[k], kPiece), 0);
        if (n == 0) die("measuring the bound: a neighbour has closed its stream");
        if (n < 0 && errno != EAGAIN && errno != EINTR) die_errno("receiving");
        if (n > 0) c.to_take[k] -= static_cast<std::size_t>(n);
        if (c.to_take[k] != 0) waits.push_back({c.in[k], POLLIN, 0});
      }
    }
    left = !waits.empty();
    if (left) wait_for(waits);
  }
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  struct NodeTime {
    int node;
    double sent, seconds;
  };
  std::vector<NodeTime> mine;
  for (const Carrier& c : carriers_)
    mine.push_back({c.place.node, static_cast<double>(each * c.out.size()), c.out.empty() ? 0.0 : elapsed});
  std::vector<NodeTime> nodes(static_cast<std::size_t>(nodes_));
  for (const NodeTime& rank : crew_.gather(mine)) {
    NodeTime& node = nodes[static_cast<std::size_t>(rank.node)];
    node.sent += rank.sent;
    node.seconds = std::max(node.seconds, rank.seconds);
  }
  double least = 0;
  for (const NodeTime& node : nodes) {
    const double rate = node.seconds > 0 ? node.sent / node.seconds : 0;
    least = least == 0 ? rate : std::min(least, rate);
  }
  return least;
}

double Bound::memory_rate() {
  crew_.meet();
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i < carriers_.size(); ++i) std::memcpy(to_.data(), from_.data(), kCopyBytes);
  const double slowest = crew_.largest(std::chrono::duration<double>(Clock::now() - begin).count());
  return 2.0 * static_cast<double>(kCopyBytes) * crew_.world() / slowest;
}

long long Bound::node_bytes(Collective collective, long long size) const {
  const long long once = size * (nodes_ - 1) / nodes_;
  return collective == Collective::all_reduce ? 2 * once : once;
}

double Bound::least_time(Collective collective, long long size, double rate) const {
  if (rate <= 0) return 0;
  if (nodes_ > 1) return static_cast<double>(node_bytes(collective, size)) / rate * 1e6;
  const double n = crew_.world(), whole = static_cast<double>(size);
  return (collective == Collective::all_reduce ? 2 * n : n + 1) * whole / rate * 1e6;
}

std::string Bound::text(double rate) const {
  char line[160];
  if (nodes_ > 1)
    std::snprintf(line, sizeof line, "%d TCP stream%s from node to node, both ways at once: %.3f GB/s", streams_,
                  streams_ == 1 ? "" : "s", rate / 1e9);
  else
    std::snprintf(line, sizeof line, "copies by all ranks at once, read and written: %.3f GB/s", rate / 1e9);
  return line;
}

}  // namespace perf
