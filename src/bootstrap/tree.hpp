// The bootstrap over TCP once its ranks have met: each rank holds a connection to its parent and to its children, and
// every call is parcels that climb to the root of the smallest subtree which holds sender and receiver, and go down
// from there. Read next: tcp.cpp, which makes it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/bootstrap/bootstrap.hpp"
#include "src/bootstrap/handshake.hpp"
#include "src/bootstrap/neighbour.hpp"

namespace hoccl {

class TreeBootstrap final : public Bootstrap {
 public:
  TreeBootstrap(int rank, int size, std::chrono::milliseconds deadline);
  ~TreeBootstrap() override;

  // Takes over the connection to a parent or child.
  void adopt(int neighbour, Socket socket);

  Rank rank() const noexcept override { return Rank(rank_); }
  int size() const noexcept override { return size_; }
  std::vector<Blob> exchange(std::span<const std::byte> mine) override;
  std::vector<Message> swap(std::vector<Message> messages) override;
  void barrier() override;
  void abort(const std::string& reason) noexcept override;
  bool aborted() const noexcept override;
  std::string reason() const override;
  void poll() noexcept override;
  int wait_fd() const noexcept override { return epoll_; }
  void set_bell(Bell* bell) noexcept override;
  // Aborts of ranks behind this one in the tree are passed on only until it is destroyed.
  void leave() noexcept override;
  bool left(Rank other) const override;

 private:
  struct Parcel {
    int from = 0;
    int to = 0;  // kAll: everybody
    Blob blob;
  };
  static constexpr int kAll = -1;
  using Parcels = std::vector<Parcel>;
  using Lock = std::unique_lock<std::mutex>;

  // One collective call: my parcels in, those for me out, ordered by sender.
  Parcels route(Call call, Parcels parcels);
  Parcels await_parcels(Lock& lock, Neighbour& neighbour, FrameKind kind);
  enum class Needs { all_ranks, nobody };
  void wait(Lock& lock, Needs needs, const std::function<bool()>& ready);
  void at_deadline(TimePoint limit);
  std::vector<int> missing() const;
  std::vector<int> left_before_this() const;

  // All below: mutex_ held.
  void pump();
  void read_from(Neighbour& neighbour);
  void handle(Neighbour& from, Frame frame);
  void ended(Neighbour& neighbour);
  void tell(FrameHead head, std::span<const std::byte> payload, const Neighbour* but);
  void note_abort(const std::string& reason, const Neighbour* from);
  void update_interest();
  bool flushed();
  void flush_for(std::chrono::milliseconds time);
  Neighbour* neighbour(int rank);
  int child_towards(int rank) const;

  const int rank_, size_;
  const std::chrono::milliseconds deadline_;
  int epoll_ = -1;  // the connections
  int wake_ = -1;   // an eventfd: another thread has read what the waiting thread waits for

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Neighbour>> neighbours_;  // the parent, if any, first
  std::map<int, std::uint32_t> left_;   // ranks that said they leave, and the last call that they took part in
  std::vector<std::uint32_t> arrived_;  // by rank: the last call that it is known to have begun
  std::uint32_t round_ = 0;             // calls begun
  Call call_{};                         // the last of them
  TimePoint limit_;                     // of that call
  bool asked_ = false;                  // a late frame was sent for it
  bool waiting_ = false;                // a thread sleeps in wait()
  bool gone_ = false;                   // leave() was called
  std::string reason_;
  Bell* bell_ = nullptr;
  std::atomic<bool> aborted_{false};
};

}  // namespace hoccl
