// THE list of transports. Two ranks use the first one, in this order, that reaches from one to the other. A new
// transport is a file that defines its make function, and a row here. Read next: transports/transport.hpp.
#include <array>

#include "transports/transport.hpp"

namespace hoccl {

std::unique_ptr<Transport> make_local(const TransportContext& context);
std::unique_ptr<Transport> make_shm(const TransportContext& context);
std::unique_ptr<Transport> make_tcp(const TransportContext& context);

std::span<const TransportRow> all_transports() {
  static constexpr std::array<TransportRow, 3> rows{{
      {"local", "threads of one process, by reference", make_local},
      {"shm", "processes of one node, through shared memory", make_shm},
      {"tcp", "any two ranks with a network between them, several streams per link", make_tcp},
  }};
  return rows;
}

}  // namespace hoccl
