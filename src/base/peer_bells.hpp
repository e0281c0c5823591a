// The bells of the peers that a transport has links to: one descriptor and one page per peer, however many links there
// are. Owned by the transport, which outlives its links.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "src/base/bell.hpp"
#include "src/base/bytes.hpp"

namespace hoccl {

class PeerBells {
 public:
  // Opens the bell at the first call for an address. Throws Error{system} when the peer's process is gone.
  RemoteBell& at(std::span<const std::byte> address) {
    auto& bell = bells_[Blob(address.begin(), address.end())];
    if (!bell) bell = std::make_unique<RemoteBell>(address);
    return *bell;
  }

 private:
  std::map<Blob, std::unique_ptr<RemoteBell>> bells_;
};

}  // namespace hoccl
