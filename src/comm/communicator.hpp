// One rank's share of a communicator: owns bootstrap, transports, links, device, executor and the cache of plans. Read
// next: wiring.cpp (links follow from plans), choose.cpp, wait.cpp (who waits, drives).
//
// Threads: one thread at a time calls prepare, start and progress. abort(), async_error() and the plain questions may
// be called by any thread at any moment.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "src/base/bell.hpp"
#include "src/base/config.hpp"
#include "src/base/error.hpp"
#include "src/bootstrap/bootstrap.hpp"
#include "src/comm/choose.hpp"
#include "src/comm/request.hpp"
#include "src/exec/executor.hpp"
#include "topology/groups.hpp"

namespace hoccl {

// Longest message. Large enough that its cost is its bytes, small enough to stay in a core's second-level cache.
inline constexpr Bytes kSlot{256 * 1024};

// What the last waits taught whoever drives a communicator (src/comm/wait.cpp).
struct WaitHint {
  int sleeps_at_once = 0;  // so many waits should not yield first
};

class Communicator {
 public:
  // Collective over the bootstrap's ranks. Throws Error when the ranks differ in version or agreed knobs, or cannot
  // meet.
  Communicator(std::unique_ptr<Bootstrap> bootstrap, Config config, int device_number);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  Rank rank() const noexcept { return bootstrap_->rank(); }
  int size() const noexcept { return bootstrap_->size(); }
  int device_number() const noexcept { return device_number_; }
  const Groups& groups() const noexcept { return groups_; }
  const Config& config() const noexcept { return config_; }
  Choice choice(const Request& request) const { return choose(groups_, config_.schedules, request); }

  // Has the request's plan its links? If not, prepare() is collective over all ranks.
  bool prepared(const Request& request) const;
  void prepare(const Request& request);
  // Begins the request, which must be prepared; then progress() until done. One request at a time.
  void start(const Request& request);
  // A request of no elements: counted, like any other call, and done.
  void skip(const Request& request);
  Executor::State progress() noexcept;
  // Why progress() failed, as the error that the call ends with; all ranks are told.
  Error failed();
  // The request has not moved for too long.
  Error timed_out();
  // A rank that the request waits for has destroyed its communicator.
  std::optional<Rank> waits_for_leaver() const;
  Error left_alone(Rank leaver);

  // Ends what is under way, from any thread; nothing works afterwards.
  void abort(const std::string& reason) noexcept;
  bool aborted() const noexcept { return bootstrap_->aborted(); }
  // Empty while all is well.
  std::optional<Error> async_error();
  // Looks for bad news from other ranks; not on the data path.
  void look_around() noexcept { bootstrap_->poll(); }

  Bell& bell() noexcept { return bell_; }
  // Appends the descriptors to sleep on beside the bell.
  void add_wait_fds(std::vector<int>& fds) const;
  // More ranks on this machine than cores: whoever waits must give the core away soon.
  bool crowded() const noexcept { return crowded_; }
  WaitHint& wait_hint() noexcept { return wait_hint_; }
  std::chrono::milliseconds timeout() const noexcept { return config_.timeout; }

  struct LinkTraffic {
    Rank peer;
    bool outgoing = false;
    Label label = Label::ring;
    std::string transport, route;
    Traffic traffic;
  };
  std::vector<LinkTraffic> traffic() const;

 private:
  // What tells links apart: peer, label, direction. A plan that needs more credits gets a link of its own.
  using LinkKey = std::tuple<int, Label, bool, int>;
  struct OpenLink {
    std::string transport;
    std::unique_ptr<SendLink> send;
    std::unique_ptr<ReceiveLink> receive;
    Link& link() const { return send ? static_cast<Link&>(*send) : *receive; }
  };
  using PlanKey = std::tuple<Kind, const Schedule*, int>;
  struct Peer {
    std::map<std::string, Blob> profiles;  // by transport
  };

  void greet();
  void bind(const PlanKey& key);
  void agree_on(const std::string& plan);
  void listen_for_reason();
  void compare(const std::vector<std::string>& versions, const std::vector<std::string>& knobs) const;
  void ensure_well();
  Error over(const std::string& what);
  std::size_t transport_to(Rank peer) const;
  void wire(const Program& program);
  void open(const Channel& channel, bool outgoing, std::vector<std::pair<LinkKey, OpenLink>>& fresh);
  static LinkKey key_of(const Channel& channel, bool outgoing);
  void reserve_scratch(const Program& program);

  Config config_;
  int device_number_ = 0;
  Bell bell_;  // outlives transports and bootstrap, whose peers ring it
  std::unique_ptr<Bootstrap> bootstrap_;
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<Peer> peers_;  // by rank
  Groups groups_;
  bool crowded_ = false;
  WaitHint wait_hint_;
  std::map<LinkKey, OpenLink> links_;      // after transports_: closed before them
  std::map<PlanKey, BoundProgram> plans_;  // refers to links_
  void* scratch_ = nullptr;
  Bytes scratch_bytes_{0};
  Executor executor_;
  Request request_;
  std::uint32_t operation_ = 0;  // number of requests so far
  bool running_ = false;

  std::mutex error_mutex_;  // guards error_
  std::optional<Error> error_;
};

}  // namespace hoccl
