// The first, slow, reliable way for ranks to talk: used at start, for wiring and for bad news, never for payload.
// Two implementations keep the same promises (tests/contract/bootstrap_contract.cpp): tcp.cpp from a unique id, and
// threads.cpp for ranks of one process. Every wait has a deadline and looks at aborted().
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/bytes.hpp"
#include "src/base/types.hpp"

namespace hoccl {

class Bell;

using Message = std::pair<Rank, Blob>;  // to, or from, that rank

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  virtual Rank rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  // Collective: everybody's bytes, by rank. Throws Error{remote} naming the missing ranks at the deadline, or the
  // reason of an abort.
  virtual std::vector<Blob> exchange(std::span<const std::byte> mine) = 0;
  // Collective: each rank sends to the peers it names, and gets what named it, ordered by sender; messages of one
  // sender keep their order.
  virtual std::vector<Message> swap(std::vector<Message> messages) = 0;
  virtual void barrier() = 0;

  // Tells all ranks, once, why this communicator is over. The first reason stays. Any thread may call.
  virtual void abort(const std::string& reason) noexcept = 0;
  // Has any rank aborted, or a rank's process ended without leaving? Cheap, any thread, no system call.
  virtual bool aborted() const noexcept = 0;
  virtual std::string reason() const = 0;

  // Looks for news from other ranks without waiting; called now and then by whoever waits. Any thread.
  virtual void poll() noexcept = 0;
  // Readable when poll() has something to do, -1 when there is no such descriptor (then news rings the bell).
  virtual int wait_fd() const noexcept = 0;
  // The bell to ring when another thread of this process brings news; must outlive the bootstrap.
  virtual void set_bell(Bell* bell) noexcept = 0;

  // This rank is done: its going away is from now on not an error. Destroying without it tells the others that this
  // rank failed.
  virtual void leave() noexcept = 0;
  // Has that rank said that it leaves, as far as poll() has heard? Not on the data path.
  virtual bool left(Rank other) const = 0;

 protected:
  Bootstrap() = default;
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;
};

// 128 bytes, printable ASCII padded with zeros: "hoccl1 <nonce> <where it was made> <address:port> …".
using UniqueId = std::array<char, 128>;

// A new id; a listener in this process serves it until all its ranks have met (or the process ends). When the knob
// HOCCL_ID is set (`fixed` not empty), the id is made from that address instead, equal in all processes for equal
// `sequence`, and rank 0 listens when it joins.
UniqueId make_unique_id(const std::string& fixed, int sequence);

// Joins the ranks that hold the same id. Throws Error: invalid_argument for a malformed id; remote at the deadline,
// naming the addresses tried or the ranks that did not come; invalid_usage when two ranks claim one number or disagree
// about the size.
std::unique_ptr<Bootstrap> join_tcp(const UniqueId& id, Rank rank, int size, std::chrono::milliseconds deadline);

// One bootstrap for each of `size` ranks of this process; each is then used by a thread of its own.
std::vector<std::unique_ptr<Bootstrap>> join_threads(int size, std::chrono::milliseconds deadline);

}  // namespace hoccl
