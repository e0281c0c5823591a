// From a unique id to the tree: meet at the rendezvous, learn where the parent listens, connect to it, and let the
// children connect. Read next: tree.cpp for what the ranks then do with it.
#include <sys/socket.h>

#include <algorithm>
#include <set>

#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/bootstrap/calls.hpp"
#include "src/bootstrap/handshake.hpp"
#include "src/bootstrap/rendezvous.hpp"
#include "src/bootstrap/tree.hpp"
#include "src/bootstrap/unique_id.hpp"

namespace hoccl {
namespace {

using namespace std::chrono_literals;

// The rendezvous gives its verdict at the deadline; so long we wait for it beyond.
constexpr auto kGrace = 500ms;

// One rank on its way in.
struct Joiner {
  IdParts id;
  Hello hello;
  TimePoint limit;

  // Doors of the tree have a secret of their own, so that nobody confuses them with the rendezvous.
  std::uint64_t tree_secret() const { return hash_text("tree", id.nonce); }
  int children() const { return std::clamp(hello.size - first_child_of(hello.rank), 0, kFanOut); }
  Visit visit(std::string whom) const { return {{}, id.nonce, hello, std::move(whom), false, limit}; }
};

std::vector<Address> addresses_of(const IdParts& id) {
  Contact contact{id.place, {}};
  for (const std::string& text : id.addresses)
    for (const Address& address : Address::resolve(text)) contact.addresses.push_back(address);
  return id.at_rank_0 ? contact.addresses : in_order_of_trial(contact);
}

// Rank 0 serves the meeting at a fixed address, and joins it from inside.
Socket serve_and_join(const Joiner& joiner) {
  const std::vector<Address> addresses = addresses_of(joiner.id);
  const bool inside = std::all_of(addresses.begin(), addresses.end(), [](const Address& a) { return a.is_loopback(); });
  Socket listener;
  try {  // the port is shared with whoever keeps it for us, and with an earlier communicator whose ranks still meet
    listener = inside ? Socket::listen(addresses.front(), true) : listen_everywhere(addresses.front().port(), true);
  } catch (const Error& error) {
    fail(error.code(), "rank 0 cannot listen at {} as the unique id wants it: {}; choose another port (knob HOCCL_ID)",
         joiner.id.addresses.front(), error.what());
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
    fail_errno("make a connection from rank 0 to its own rendezvous");
  Socket mine(ends[0]), theirs(ends[1]);
  serve_rendezvous(std::move(listener), joiner.id.nonce, std::move(theirs));
  return pay_over(std::move(mine), joiner.visit("its own rendezvous"));
}

Socket visit_rendezvous(const Joiner& joiner) {
  Visit visit = joiner.visit(joiner.id.at_rank_0 ? "rank 0, which listens for this unique id when it joins"
                                                 : "the rendezvous of the unique id");
  visit.addresses = addresses_of(joiner.id);
  visit.patient = joiner.id.at_rank_0;
  return pay(visit);
}

Socket visit_parent(const Joiner& joiner, const Contact& contact) {
  Visit visit = joiner.visit(fmt::format("rank {}", parent_of(joiner.hello.rank)));
  visit.addresses = in_order_of_trial(contact);
  visit.secret = joiner.tree_secret();
  return pay(visit);
}

std::vector<int> absent_children(const Joiner& joiner, const std::set<int>& came) {
  std::vector<int> absent;
  for (int i = 0; i < joiner.children(); ++i)
    if (const int child = first_child_of(joiner.hello.rank) + i; came.count(child) == 0) absent.push_back(child);
  return absent;
}

// Waits at the own door until all children have come, or somebody says that it is over.
void receive_children(const Joiner& joiner, Door& door, TreeBootstrap& tree) {
  const int rank = joiner.hello.rank;
  std::set<int> came;
  while (static_cast<int>(came.size()) < joiner.children()) {
    require(Clock::now() < joiner.limit, Code::remote, "{} did not connect to rank {} within {}",
            ranks_text(absent_children(joiner, came)), rank,
            seconds_text(std::chrono::milliseconds(joiner.hello.patience_ms)));
    std::vector<pollfd> waits{{tree.wait_fd(), POLLIN, 0}};
    door.add_to(waits);
    ::poll(waits.data(), waits.size(), milliseconds_until(std::min(joiner.limit, door.next_limit())));
    tree.poll();
    if (tree.aborted()) throw Error(Code::remote, tree.reason());
    for (Door::Visitor& visitor : door.work()) {
      const int child = visitor.hello.rank;
      if (child <= rank || parent_of(child) != rank || child >= joiner.hello.size || came.count(child) != 0) {
        post_refusal(visitor.socket, Code::invalid_usage,
                     fmt::format("rank {} does not wait for rank {}", rank, child));
        continue;
      }
      if (!post(visitor.socket, Kind::welcome, 0, {})) continue;
      tree.adopt(child, std::move(visitor.socket));
      came.insert(child);
    }
  }
}

}  // namespace

std::unique_ptr<Bootstrap> join_tcp(const UniqueId& id, Rank rank, int size, std::chrono::milliseconds deadline) {
  require(size >= 1, Code::invalid_argument, "a communicator of {} ranks", size);
  require(index(rank) >= 0 && index(rank) < size, Code::invalid_argument, "rank {} of a communicator of {} ranks",
          index(rank), size);
  require(deadline > 0ms, Code::invalid_argument, "a deadline of {} for joining", seconds_text(deadline));
  deadline = std::min(deadline, kLongestDeadline);
  const TimePoint start = Clock::now();
  Joiner joiner{parse_id(id), {index(rank), size, deadline.count(), deadline.count(), {}}, start + deadline};
  auto tree = std::make_unique<TreeBootstrap>(index(rank), size, deadline);
  if (size == 1 && joiner.id.at_rank_0) return tree;  // nobody to meet

  Socket listener;
  if (joiner.children() > 0) {
    listener = listen_everywhere(0, false);
    joiner.hello.contact = contact_at(listener.local().port());
  }
  Socket meeting = joiner.id.at_rank_0 && index(rank) == 0 ? serve_and_join(joiner) : visit_rendezvous(joiner);
  const Contact parent = await_parent(meeting, joiner.hello, joiner.limit + kGrace);
  meeting.close();
  try {
    if (index(rank) != 0) tree->adopt(parent_of(index(rank)), visit_parent(joiner, parent));
    if (listener.valid()) {
      Door door(std::move(listener), joiner.tree_secret());
      receive_children(joiner, door, *tree);
    }
  } catch (const std::exception& error) {
    tree->abort(error.what());
    throw;
  }
  log::info("bootstrap", "rank {} of {} joined after {} ms", index(rank), size,
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count());
  return tree;
}

}  // namespace hoccl
