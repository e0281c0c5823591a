// The bootstrap for ranks that are threads of one process: they meet in a Hall. Nothing leaves the process, no
// descriptor is used; an abort rings the other ranks' bells.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>

#include "src/base/bell.hpp"
#include "src/base/error.hpp"
#include "src/bootstrap/bootstrap.hpp"
#include "src/bootstrap/calls.hpp"
#include "src/bootstrap/handshake.hpp"

namespace hoccl {
namespace {

// One collective call: what each rank brought. Written under the Hall's lock while ranks arrive, only read once
// complete; it lives until the last rank has taken its part.
struct Round {
  Call call{};
  int first = 0;  // the rank that came first
  int came = 0;
  std::vector<std::vector<Message>> brought;  // by rank; messages to a rank, for exchange one without a receiver
  std::vector<bool> here;
};

// What the ranks share. Owned by all of them together (shared_ptr): they are destroyed by threads of their own, in an
// order that nobody knows.
struct Hall {
  Hall(int ranks, std::chrono::milliseconds limit)
      : size(ranks), deadline(limit), bells(static_cast<std::size_t>(ranks), nullptr), round(next_round()) {}

  std::shared_ptr<Round> next_round() const {
    auto next = std::make_shared<Round>();
    next->brought.resize(static_cast<std::size_t>(size));
    next->here.assign(static_cast<std::size_t>(size), false);
    return next;
  }

  // mutex held
  void note_abort(const std::string& text) {
    if (!reason.empty()) return;
    reason = text.empty() ? "no reason given" : text;
    // release, partner: the acquire load in ThreadBootstrap::aborted().
    over.store(true, std::memory_order_release);
    news.notify_all();
    for (Bell* bell : bells)
      if (bell != nullptr) bell->ring();
  }

  const int size;
  const std::chrono::milliseconds deadline;
  std::mutex mutex;
  std::condition_variable news;
  std::vector<Bell*> bells;  // by rank
  std::set<int> left;
  std::shared_ptr<Round> round;  // the one that ranks arrive at
  std::string reason;
  std::atomic<bool> over{false};
};

class ThreadBootstrap final : public Bootstrap {
 public:
  ThreadBootstrap(std::shared_ptr<Hall> hall, int rank) : hall_(std::move(hall)), rank_(rank) {}

  ~ThreadBootstrap() override {
    const std::lock_guard lock(hall_->mutex);
    hall_->bells[static_cast<std::size_t>(rank_)] = nullptr;
    if (hall_->left.count(rank_) == 0) hall_->note_abort(fmt::format("rank {} ended without leaving", rank_));
  }

  Rank rank() const noexcept override { return Rank(rank_); }
  int size() const noexcept override { return hall_->size; }

  std::vector<Blob> exchange(std::span<const std::byte> mine) override {
    std::vector<Message> own;
    own.emplace_back(Rank(rank_), Blob(mine.begin(), mine.end()));
    const auto round = meet(Call::exchange, std::move(own));
    std::vector<Blob> all;
    for (const auto& messages : round->brought) all.push_back(messages.front().second);
    return all;
  }

  std::vector<Message> swap(std::vector<Message> messages) override {
    for (const Message& message : messages)
      require(index(message.first) >= 0 && index(message.first) < size(), Code::invalid_argument,
              "a message to rank {} of {}", index(message.first), size());
    const auto round = meet(Call::swap, std::move(messages));
    std::vector<Message> mine;
    for (int from = 0; from < size(); ++from)
      for (const auto& [to, blob] : round->brought[static_cast<std::size_t>(from)])
        if (index(to) == rank_) mine.emplace_back(Rank(from), blob);
    return mine;
  }

  void barrier() override { meet(Call::barrier, {}); }

  void abort(const std::string& reason) noexcept override {
    const std::lock_guard lock(hall_->mutex);
    if (hall_->left.count(rank_) == 0) hall_->note_abort(reason);
  }
  bool aborted() const noexcept override {
    // acquire, partner: the release store in Hall::note_abort().
    return hall_->over.load(std::memory_order_acquire);
  }
  std::string reason() const override {
    const std::lock_guard lock(hall_->mutex);
    return hall_->reason;
  }

  void poll() noexcept override {}  // news needs no looking for: it is written to where aborted() reads
  int wait_fd() const noexcept override { return -1; }
  void set_bell(Bell* bell) noexcept override {
    const std::lock_guard lock(hall_->mutex);
    hall_->bells[static_cast<std::size_t>(rank_)] = bell;
  }

  void leave() noexcept override {
    const std::lock_guard lock(hall_->mutex);
    hall_->left.insert(rank_);
    hall_->news.notify_all();
  }
  bool left(Rank other) const override {
    const std::lock_guard lock(hall_->mutex);
    return hall_->left.count(index(other)) != 0;
  }

 private:
  // Brings mine, and waits until all have brought theirs.
  std::shared_ptr<const Round> meet(Call call, std::vector<Message> mine) {
    std::unique_lock lock(hall_->mutex);
    require(hall_->left.count(rank_) == 0, Code::invalid_usage, "{} on rank {}, which has left", call_name(call),
            rank_);
    throw_if_over(call);
    const std::shared_ptr<Round> round = hall_->round;
    if (round->came == 0) round->call = call, round->first = rank_;
    if (round->call != call) {
      hall_->note_abort(mismatch_text(rank_, call, round->first, round->call));
      throw Error(Code::invalid_usage, hall_->reason);
    }
    round->brought[static_cast<std::size_t>(rank_)] = std::move(mine);
    round->here[static_cast<std::size_t>(rank_)] = true;
    if (++round->came == hall_->size) {
      hall_->round = hall_->next_round();
      hall_->news.notify_all();
      return round;
    }
    const TimePoint limit = Clock::now() + hall_->deadline;
    while (round->came < hall_->size) {
      throw_if_over(call);
      if (hall_->news.wait_until(lock, limit) == std::cv_status::timeout && round->came < hall_->size)
        hall_->note_abort(missing_text(*round));
    }
    return round;
  }

  // Every call needs every rank.
  void throw_if_over(Call call) const {
    if (!hall_->reason.empty()) throw Error(Code::remote, hall_->reason);
    if (!hall_->left.empty())
      fail(Code::invalid_usage, "{} needs {}, which has left this communicator", call_name(call),
           ranks_text({hall_->left.begin(), hall_->left.end()}));
  }

  std::string missing_text(const Round& round) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < hall_->size; ++rank)
      if (!round.here[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
    return fmt::format("{}: {} did not come within {} of rank {}'s call", call_name(round.call), ranks_text(ranks),
                       seconds_text(hall_->deadline), rank_);
  }

  const std::shared_ptr<Hall> hall_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Bootstrap>> join_threads(int size, std::chrono::milliseconds deadline) {
  require(size >= 1, Code::invalid_argument, "a communicator of {} ranks", size);
  const auto hall = std::make_shared<Hall>(size, std::min(deadline, kLongestDeadline));
  std::vector<std::unique_ptr<Bootstrap>> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(std::make_unique<ThreadBootstrap>(hall, rank));
  return ranks;
}

}  // namespace hoccl
