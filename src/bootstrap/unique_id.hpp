// A unique id taken apart, and the addresses at which a process can be reached. Values. Read next: handshake.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/bytes.hpp"
#include "src/base/socket.hpp"
#include "src/bootstrap/bootstrap.hpp"

namespace hoccl {

// Where a process listens. `place` is a hash of network_identity(): processes of one place meet at the loopback
// address.
struct Contact {
  std::uint32_t place = 0;
  std::vector<Address> addresses;  // the loopback address last
};

std::uint32_t network_place();
// This process, listening at `port` of all addresses.
Contact contact_at(std::uint16_t port);
// The addresses to try from here: loopback first when both are in one place, last otherwise.
std::vector<Address> in_order_of_trial(const Contact& contact);
void put(Writer& writer, const Contact& contact);
Contact get_contact(Reader& reader);

// A listener at `port` (0: any free one) of all addresses of this host.
Socket listen_everywhere(std::uint16_t port, bool share_port);

// The parts of "hoccl1 <nonce> <place> <address> …".
struct IdParts {
  std::uint64_t nonce = 0;
  // The place is written "at-rank0": nobody listens yet; rank 0 does, at the address, when it joins.
  bool at_rank_0 = false;
  std::uint32_t place = 0;
  std::vector<std::string> addresses;  // names are not resolved, so that the id is equal wherever it is made
};

// Throws Error{invalid_argument} that says what is wrong.
IdParts parse_id(const UniqueId& id);
// Leaves out addresses that do not fit, but never the last.
UniqueId print_id(const IdParts& parts);

}  // namespace hoccl
