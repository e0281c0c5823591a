// Making, printing and reading unique ids, and finding the addresses that stand in them. An id is text, so that it can
// be passed on by any means and read by people. Read next: rendezvous.cpp, which answers at the addresses.
#include "src/bootstrap/unique_id.hpp"

#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "src/base/error.hpp"
#include "src/bootstrap/rendezvous.hpp"

namespace hoccl {
namespace {

constexpr std::string_view kMark = "hoccl1";
constexpr std::string_view kAtRank0 = "at-rank0";
constexpr std::size_t kRoom = std::tuple_size_v<UniqueId> - 1;  // a zero stays at the end
constexpr std::size_t kMostAddresses = 16;

std::uint64_t random_number() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) fail_errno("get random bytes for a unique id");
  return number;
}

// Bridges for containers and virtual machines have addresses that lead nowhere from other hosts.
bool is_bridge(const std::string& name) {
  for (const std::string_view prefix : {"docker", "br-", "virbr", "veth", "cni", "flannel", "lxc"})
    if (name.starts_with(prefix)) return true;
  return false;
}

// 0 is tried first. Addresses that only this link knows are not given to others at all.
int order_of(const Interface& interface) {
  if (interface.loopback) return interface.address.family() == AF_INET ? 4 : 5;
  return (is_bridge(interface.name) ? 2 : 0) + (interface.address.family() == AF_INET ? 0 : 1);
}

std::uint64_t parse_hex(std::string_view text, std::size_t digits, std::string_view whole) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  require(text.size() == digits && error == std::errc() && end == text.data() + text.size(), Code::invalid_argument,
          "malformed unique id \"{}\": \"{}\" is not {} hexadecimal digits", whole, text, digits);
  return number;
}

IdParts fixed_parts(const std::string& fixed, int sequence) {
  IdParts parts;
  parts.at_rank_0 = true;
  if (fixed.starts_with(kMark)) {
    require(fixed.size() <= kRoom, Code::invalid_argument, "malformed unique id \"{}\": longer than {} characters",
            fixed, kRoom);
    UniqueId id{};
    std::copy(fixed.begin(), fixed.end(), id.begin());
    parts.addresses = parse_id(id).addresses;
  } else {
    require(Address::well_formed(fixed), Code::invalid_argument,
            "HOCCL_ID=\"{}\": expected host:port, a.b.c.d:port or [ipv6]:port, where rank 0 shall listen", fixed);
    parts.addresses = {fixed};
  }
  parts.nonce = hash_bytes(std::as_bytes(std::span(&sequence, 1)), hash_text(fixed));
  return parts;
}

}  // namespace

std::uint32_t network_place() {
  const std::uint64_t hash = hash_text(network_identity());
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

Contact contact_at(std::uint16_t port) {
  std::vector<Interface> found = interfaces();
  std::erase_if(found, [](const Interface& i) { return i.address.is_link_local() && i.address.family() == AF_INET6; });
  std::stable_sort(found.begin(), found.end(),
                   [](const Interface& a, const Interface& b) { return order_of(a) < order_of(b); });
  Contact contact{network_place(), {}};
  bool loopback = false;
  for (const Interface& interface : found) {
    if (interface.loopback && std::exchange(loopback, true)) continue;  // one is enough
    if (!interface.loopback && contact.addresses.size() + 1 == kMostAddresses) continue;
    contact.addresses.push_back(interface.address.with_port(port));
  }
  require(!contact.addresses.empty(), Code::system, "this host has no network interface that is up, not even loopback");
  return contact;
}

std::vector<Address> in_order_of_trial(const Contact& contact) {
  std::vector<Address> addresses = contact.addresses;
  const bool here = contact.place != 0 && contact.place == network_place();
  std::stable_partition(addresses.begin(), addresses.end(), [&](const Address& a) { return a.is_loopback() == here; });
  return addresses;
}

void put(Writer& writer, const Contact& contact) {
  writer.put(contact.place).put(static_cast<std::uint32_t>(contact.addresses.size()));
  for (const Address& address : contact.addresses) writer.put(address);
}

Contact get_contact(Reader& reader) {
  Contact contact;
  contact.place = reader.get<std::uint32_t>();
  const auto count = reader.get<std::uint32_t>();
  require(count <= kMostAddresses, Code::remote, "a rank says that it has {} addresses", count);
  for (std::uint32_t i = 0; i < count; ++i) contact.addresses.push_back(reader.get<Address>());
  return contact;
}

Socket listen_everywhere(std::uint16_t port, bool share_port) {
  try {
    return Socket::listen(Address::any(AF_INET6, port), share_port);
  } catch (const Error&) {  // a host without IPv6; when it is something else, IPv4 says it again
    return Socket::listen(Address::any(AF_INET, port), share_port);
  }
}

IdParts parse_id(const UniqueId& id) {
  const auto zero = std::find(id.begin(), id.end(), '\0');
  const std::string whole(id.begin(), zero);
  const bool clean = zero != id.end() && std::all_of(id.begin(), zero, [](char c) { return c >= ' ' && c < 127; }) &&
                     std::all_of(zero, id.end(), [](char c) { return c == '\0'; });
  require(clean, Code::invalid_argument,
          "malformed unique id: not {} bytes of printable text and zeros; pass on all {} bytes "
          "as ncclGetUniqueId made them",
          id.size(), id.size());
  std::istringstream words(whole);
  std::string mark, nonce, place;
  words >> mark >> nonce >> place;
  require(mark == kMark, Code::invalid_argument, "malformed unique id \"{}\": it does not begin with \"{}\"", whole,
          kMark);
  IdParts parts;
  parts.nonce = parse_hex(nonce, 16, whole);
  parts.at_rank_0 = place == kAtRank0;
  if (!parts.at_rank_0) parts.place = static_cast<std::uint32_t>(parse_hex(place, 8, whole));
  for (std::string address; words >> address;) {
    const bool good = parts.at_rank_0 ? Address::well_formed(address) : Address::parse(address).has_value();
    require(good, Code::invalid_argument, "malformed unique id \"{}\": \"{}\" is no address", whole, address);
    parts.addresses.push_back(address);
  }
  require(!parts.addresses.empty(), Code::invalid_argument, "malformed unique id \"{}\": it names no address", whole);
  return parts;
}

UniqueId print_id(const IdParts& parts) {
  const std::string place = parts.at_rank_0 ? std::string(kAtRank0) : fmt::format("{:08x}", parts.place);
  std::string text = fmt::format("{} {:016x} {}", kMark, parts.nonce, place);
  const std::string last = " " + parts.addresses.back();
  require(text.size() + last.size() <= kRoom, Code::invalid_argument, "the address \"{}\" is too long for a unique id",
          parts.addresses.back());
  for (std::size_t i = 0; i + 1 < parts.addresses.size(); ++i)
    if (text.size() + 1 + parts.addresses[i].size() + last.size() <= kRoom) text += " " + parts.addresses[i];
  text += last;
  UniqueId id{};
  std::copy(text.begin(), text.end(), id.begin());
  return id;
}

UniqueId make_unique_id(const std::string& fixed, int sequence) {
  if (!fixed.empty()) return print_id(fixed_parts(fixed, sequence));
  Socket listener = listen_everywhere(0, false);
  const Contact contact = contact_at(listener.local().port());
  IdParts parts{random_number(), false, contact.place, {}};
  for (const Address& address : contact.addresses) parts.addresses.push_back(address.text());
  const UniqueId id = print_id(parts);
  serve_rendezvous(std::move(listener), parts.nonce, Socket());
  return id;
}

}  // namespace hoccl
