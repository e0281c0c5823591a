// Calls and bad news over the tree. One lock guards all; nobody sleeps with it. Whoever calls poll() may read what a
// waiting thread needs, so it wakes that thread through wake_.
#include "src/bootstrap/tree.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "src/base/bell.hpp"
#include "src/bootstrap/rendezvous.hpp"

namespace hoccl {
namespace {

using namespace std::chrono_literals;

constexpr auto kFarewell = 1000ms;  // to get the last frames out
constexpr std::size_t kLongestReason = 4096;

std::string text_of(const Blob& blob) { return {reinterpret_cast<const char*>(blob.data()), blob.size()}; }
std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

TreeBootstrap::TreeBootstrap(int rank, int size, std::chrono::milliseconds deadline)
    : rank_(rank), size_(size), deadline_(deadline), arrived_(static_cast<std::size_t>(size), 0) {
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) fail_errno("make an epoll descriptor for the start-up connections");
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) {
    ::close(epoll_);
    fail_errno("make an eventfd for the start-up connections");
  }
}

TreeBootstrap::~TreeBootstrap() {
  {
    const Lock lock(mutex_);
    // Who goes without a word just closes: its neighbours tell everybody.
    if (gone_ || !reason_.empty()) {
      flush_for(kFarewell);
      for (auto& n : neighbours_) n->finish();
    }
  }
  ::close(wake_);
  ::close(epoll_);
}

void TreeBootstrap::adopt(int neighbour, Socket socket) {
  const Lock lock(mutex_);
  neighbours_.push_back(std::make_unique<Neighbour>(neighbour, std::move(socket)));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = neighbours_.back().get();
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, neighbours_.back()->fd(), &event) != 0)
    fail_errno(fmt::format("watch the connection to rank {}", neighbour));
}

std::vector<Blob> TreeBootstrap::exchange(std::span<const std::byte> mine) {
  Parcels own;
  own.push_back({rank_, kAll, Blob(mine.begin(), mine.end())});
  std::vector<Blob> all(static_cast<std::size_t>(size_));
  for (Parcel& parcel : route(Call::exchange, std::move(own)))
    all[static_cast<std::size_t>(parcel.from)] = std::move(parcel.blob);
  return all;
}

std::vector<Message> TreeBootstrap::swap(std::vector<Message> messages) {
  Parcels own;
  for (auto& [to, blob] : messages) {
    require(index(to) >= 0 && index(to) < size_, Code::invalid_argument, "a message to rank {} of {}", index(to),
            size_);
    own.push_back({rank_, index(to), std::move(blob)});
  }
  std::vector<Message> got;
  for (Parcel& parcel : route(Call::swap, std::move(own))) got.emplace_back(Rank(parcel.from), std::move(parcel.blob));
  return got;
}

void TreeBootstrap::barrier() { route(Call::barrier, {}); }

namespace {

template <class Parcels>
Blob pack(const Parcels& parcels) {
  Writer writer;
  writer.put(static_cast<std::uint32_t>(parcels.size()));
  for (const auto& parcel : parcels) writer.put(parcel.from).put(parcel.to).put_bytes(parcel.blob);
  return writer.take();
}

}  // namespace

TreeBootstrap::Parcels TreeBootstrap::route(Call call, Parcels parcels) {
  Lock lock(mutex_);
  require(!gone_, Code::invalid_usage, "{} on rank {}, which has left", call_name(call), rank_);
  ++round_;
  call_ = call;
  limit_ = Clock::now() + deadline_;
  asked_ = false;
  arrived_[static_cast<std::size_t>(rank_)] = round_;
  tell({0, FrameKind::arrived, call, 0, round_, rank_}, {}, nullptr);

  Parcels mine, upward;
  std::map<int, Parcels> downward;  // by child
  const auto sort = [&](Parcel&& parcel, bool from_above) {
    if (parcel.to == kAll) {
      if (rank_ != 0 && !from_above) return upward.push_back(std::move(parcel));
      for (const auto& n : neighbours_)
        if (n->rank() > rank_) downward[n->rank()].push_back(parcel);
      return mine.push_back(std::move(parcel));
    }
    if (parcel.to == rank_) return mine.push_back(std::move(parcel));
    const int child = child_towards(parcel.to);
    (child >= 0 ? downward[child] : upward).push_back(std::move(parcel));
  };
  for (Parcel& parcel : parcels) sort(std::move(parcel), false);
  for (const auto& n : neighbours_)
    if (n->rank() > rank_)
      for (Parcel& parcel : await_parcels(lock, *n, FrameKind::up)) sort(std::move(parcel), false);
  if (rank_ != 0) {
    Neighbour& parent = *neighbour(parent_of(rank_));
    parent.send({0, FrameKind::up, call, 0, round_, rank_}, pack(upward));
    update_interest();
    for (Parcel& parcel : await_parcels(lock, parent, FrameKind::down)) sort(std::move(parcel), true);
  }
  for (const auto& n : neighbours_)
    if (n->rank() > rank_) n->send({0, FrameKind::down, call, 0, round_, rank_}, pack(downward[n->rank()]));
  update_interest();
  // Nobody may look after this rank's connections for a while, so nothing must be left behind.
  wait(lock, Needs::nobody, [&] { return flushed(); });
  std::stable_sort(mine.begin(), mine.end(), [](const Parcel& a, const Parcel& b) { return a.from < b.from; });
  return mine;
}

TreeBootstrap::Parcels TreeBootstrap::await_parcels(Lock& lock, Neighbour& from, FrameKind kind) {
  wait(lock, Needs::all_ranks, [&] { return !from.inbox.empty(); });
  const Frame frame = std::move(from.inbox.front());
  from.inbox.pop_front();
  if (frame.head.kind != kind || frame.head.round != round_ || frame.head.call != call_) {
    const std::string text = mismatch_text(rank_, call_, from.rank(), frame.head.call);
    note_abort(text, nullptr);
    throw Error(Code::invalid_usage, text);
  }
  Reader reader(frame.payload);
  Parcels parcels(reader.get<std::uint32_t>());
  for (Parcel& parcel : parcels) {
    parcel.from = reader.get<int>();
    parcel.to = reader.get<int>();
    parcel.blob = reader.get_bytes();
    require(parcel.from >= 0 && parcel.from < size_ && parcel.to >= kAll && parcel.to < size_, Code::remote,
            "rank {} sent a parcel from {} to {}", from.rank(), parcel.from, parcel.to);
  }
  return parcels;
}

void TreeBootstrap::wait(Lock& lock, Needs needs, const std::function<bool()>& ready) {
  while (true) {
    pump();
    if (!reason_.empty()) throw Error(Code::remote, reason_);
    if (ready()) return;
    if (needs == Needs::all_ranks) {
      const std::vector<int> left = left_before_this();
      require(left.empty(), Code::invalid_usage, "{} needs {}, which has left this communicator", call_name(call_),
              ranks_text(left));
    }
    const TimePoint now = Clock::now();
    if (now >= limit_) at_deadline(now);
    if (!reason_.empty()) continue;
    std::array<pollfd, 2> waits{pollfd{epoll_, POLLIN, 0}, pollfd{wake_, POLLIN, 0}};
    const int time = asked_ ? 20 : milliseconds_until(limit_);
    waiting_ = true;
    lock.unlock();
    ::poll(waits.data(), waits.size(), time);
    lock.lock();
    waiting_ = false;
    std::uint64_t rung = 0;
    (void)!::read(wake_, &rung, sizeof rung);
  }
}

// Names who is missing, as far as it can be known here: a rank hears of the ranks below it and of its neighbours, rank
// 0 of all. Who knows of nobody asks rank 0, and gives it some time.
void TreeBootstrap::at_deadline(TimePoint now) {
  std::vector<int> ranks = missing();
  if (rank_ != 0 && arrived_[static_cast<std::size_t>(parent_of(rank_))] < round_)
    ranks.insert(ranks.begin(), parent_of(rank_));
  std::string text;
  if (!ranks.empty()) {
    text = fmt::format("{}: {} did not come within {} of rank {}'s call", call_name(call_), ranks_text(ranks),
                       seconds_text(deadline_), rank_);
  } else if (!asked_) {
    asked_ = true;
    tell({0, FrameKind::late, call_, 0, round_, rank_}, {}, nullptr);
    return;
  } else if (now < limit_ + std::clamp<std::chrono::milliseconds>(deadline_ / 4, 100ms, 1000ms)) {
    return;
  } else {
    text = fmt::format("{}: rank {} waited {} in vain, though the ranks near it in the tree have come",
                       call_name(call_), rank_, seconds_text(deadline_));
  }
  note_abort(text, nullptr);
}

// Those below this rank that have not begun the current call. What is behind a missing one cannot be heard, so only the
// first on each way is named.
std::vector<int> TreeBootstrap::missing() const {
  const auto came = [&](int rank) { return arrived_[static_cast<std::size_t>(rank)] >= round_; };
  std::vector<int> ranks;
  for (int rank = rank_ + 1; rank < size_; ++rank)
    if (!came(rank) && child_towards(rank) >= 0 && came(parent_of(rank))) ranks.push_back(rank);
  return ranks;
}

// A leave may overtake parcels of a call that its sender has finished: those still come.
std::vector<int> TreeBootstrap::left_before_this() const {
  std::vector<int> ranks;
  for (const auto& [rank, last] : left_)
    if (last < round_) ranks.push_back(rank);
  return ranks;
}

void TreeBootstrap::abort(const std::string& reason) noexcept {
  try {
    const Lock lock(mutex_);
    if (!gone_) note_abort(reason, nullptr);
  } catch (const std::exception&) {  // out of memory; the others learn it when this process ends
  }
}

bool TreeBootstrap::aborted() const noexcept {
  // acquire, partner: the release store in note_abort(); what was known before the abort is visible to who sees it.
  return aborted_.load(std::memory_order_acquire);
}

std::string TreeBootstrap::reason() const {
  const Lock lock(mutex_);
  return reason_;
}

void TreeBootstrap::set_bell(Bell* bell) noexcept {
  const Lock lock(mutex_);
  bell_ = bell;
}

void TreeBootstrap::poll() noexcept {
  const Lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // whoever holds it is looking
  pump();
}

void TreeBootstrap::leave() noexcept {
  try {
    const Lock lock(mutex_);
    if (gone_) return;
    tell({0, FrameKind::leave, Call{}, 0, round_, rank_}, {}, nullptr);
    gone_ = true;
    flush_for(kFarewell);
  } catch (const std::exception&) {  // out of memory: the others will take it for a failure
  }
}

bool TreeBootstrap::left(Rank other) const {
  const Lock lock(mutex_);
  return left_.count(index(other)) != 0;
}

void TreeBootstrap::pump() {
  try {
    std::array<epoll_event, kFanOut + 1> events;
    const int n = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
    if (n <= 0) return;
    for (int i = 0; i < n; ++i) {
      auto& from = *static_cast<Neighbour*>(events[static_cast<std::size_t>(i)].data.ptr);
      from.flush();
      read_from(from);
    }
    update_interest();
    const std::uint64_t one = 1;
    if (waiting_) (void)!::write(wake_, &one, sizeof one);
  } catch (const std::exception& error) {
    note_abort(fmt::format("rank {} cannot read its start-up connections: {}", rank_, error.what()), nullptr);
  }
}

void TreeBootstrap::read_from(Neighbour& from) {
  std::deque<Frame> frames;
  const bool open = from.read(frames);
  for (Frame& frame : frames) handle(from, std::move(frame));
  if (!open) ended(from);
}

void TreeBootstrap::handle(Neighbour& from, Frame frame) {
  const bool known = frame.head.rank >= 0 && frame.head.rank < size_;
  const bool from_below = from.rank() > rank_;
  switch (frame.head.kind) {
    case FrameKind::arrived:
      if (known) arrived_[static_cast<std::size_t>(frame.head.rank)] = frame.head.round;
      if (from_below && rank_ != 0) neighbours_.front()->send(frame.head, {});
      break;
    case FrameKind::late:
      if (rank_ != 0 && from_below) neighbours_.front()->send(frame.head, {});
      if (rank_ == 0 && frame.head.round == round_ && !missing().empty())
        note_abort(fmt::format("{}: {} did not come within {} of rank {}'s call", call_name(frame.head.call),
                               ranks_text(missing()), seconds_text(deadline_), frame.head.rank),
                   nullptr);
      break;
    case FrameKind::abort:
      note_abort(text_of(frame.payload), &from);
      break;
    case FrameKind::leave:
      if (known) left_.emplace(frame.head.rank, frame.head.round);
      if (frame.head.rank == from.rank()) from.left = true;
      tell(frame.head, {}, &from);
      break;
    default:
      from.inbox.push_back(std::move(frame));
  }
}

void TreeBootstrap::ended(Neighbour& neighbour) {
  const int error = neighbour.error();
  // Closing alone would leave it in the set if a forked process held it too.
  (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, neighbour.fd(), nullptr);
  neighbour.close();
  if (neighbour.left || gone_) return;
  note_abort(fmt::format("rank {} ended without leaving (its connection to rank {} closed{}{})", neighbour.rank(),
                         rank_, error == 0 ? "" : ": ", error == 0 ? "" : errno_text(error)),
             nullptr);
}

void TreeBootstrap::tell(FrameHead head, std::span<const std::byte> payload, const Neighbour* but) {
  for (const auto& n : neighbours_)
    if (n.get() != but) n->send(head, payload);
  update_interest();
}

void TreeBootstrap::note_abort(const std::string& reason, const Neighbour* from) {
  if (!reason_.empty()) return;
  reason_ = reason.empty() ? "no reason given" : reason.substr(0, kLongestReason);
  // release, partner: the acquire load in aborted().
  aborted_.store(true, std::memory_order_release);
  tell({0, FrameKind::abort, Call{}, 0, round_, rank_}, bytes_of_text(reason_), from);
  if (bell_ != nullptr) bell_->ring();
  const std::uint64_t one = 1;
  if (waiting_) (void)!::write(wake_, &one, sizeof one);
}

// Asks to be woken by a writable socket only while something waits to be written.
void TreeBootstrap::update_interest() {
  for (const auto& n : neighbours_) {
    if (!n->open()) continue;
    epoll_event event{};
    event.events = EPOLLIN | (n->flush() ? 0U : static_cast<unsigned>(EPOLLOUT));
    event.data.ptr = n.get();
    (void)::epoll_ctl(epoll_, EPOLL_CTL_MOD, n->fd(), &event);
  }
}

bool TreeBootstrap::flushed() {
  return std::all_of(neighbours_.begin(), neighbours_.end(), [](const auto& n) { return n->flush(); });
}

void TreeBootstrap::flush_for(std::chrono::milliseconds time) {
  const TimePoint limit = Clock::now() + time;
  while (!flushed() && Clock::now() < limit) ::poll(nullptr, 0, 1);
}

Neighbour* TreeBootstrap::neighbour(int rank) {
  for (const auto& n : neighbours_)
    if (n->rank() == rank) return n.get();
  return nullptr;
}

// The child whose subtree holds `rank`, -1 when it is not below.
int TreeBootstrap::child_towards(int rank) const {
  while (rank > rank_ && parent_of(rank) != rank_) rank = parent_of(rank);
  return rank > rank_ ? rank : -1;
}

}  // namespace hoccl
