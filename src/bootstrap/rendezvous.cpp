// The service behind a unique id. One thread, one poll loop, no waiting for anybody in particular. Once it has found
// that the ranks cannot meet (one is missing, two have one number, sizes differ) it stays for a while to tell those who
// come later.
#include "src/bootstrap/rendezvous.hpp"

#include <signal.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "src/bootstrap/calls.hpp"

namespace hoccl {
namespace {

using namespace std::chrono_literals;
using Outcome = Progress::Outcome;

constexpr auto kLinger = 30s;  // for late ranks, after a verdict

class Rendezvous {
 public:
  Rendezvous(Socket listener, std::uint64_t nonce, Socket inside) : door_(std::move(listener), nonce) {
    if (inside.valid()) door_.admit(std::move(inside));
  }

  void run() {
    while (!finished()) {
      wait();
      for (Door::Visitor& visitor : door_.work()) receive_rank(visitor);
      watch_ranks();
      if (verdict_.empty() && !met_ && Clock::now() >= limit_)
        decide(Code::remote, fmt::format("{} did not come within {}", ranks_text(missing()), seconds_text(patience_)));
    }
  }

 private:
  struct Joined {
    Socket socket;
    Contact contact;
  };

  bool finished() const {
    if (met_) return true;
    return !verdict_.empty() && (static_cast<int>(told_.size()) >= size_ || Clock::now() >= limit_);
  }

  void wait() {
    std::vector<pollfd> waits;
    door_.add_to(waits);
    for (const auto& [rank, joined] : ranks_) waits.push_back({joined.socket.fd(), POLLIN, 0});
    ::poll(waits.data(), waits.size(), milliseconds_until(std::min(limit_, door_.next_limit())));
  }

  void receive_rank(Door::Visitor& visitor) {
    const Hello& hello = visitor.hello;
    if (verdict_.empty()) judge(hello);
    if (!verdict_.empty()) {
      post_refusal(visitor.socket, code_, verdict_);
      told_.insert(hello.rank);
      return;
    }
    // A rank that went away between its hello and the welcome is found by watch_ranks().
    post(visitor.socket, Kind::welcome, 0, {});
    ranks_.emplace(hello.rank, Joined{std::move(visitor.socket), hello.contact});
    if (static_cast<int>(ranks_.size()) == size_) let_go();
  }

  void judge(const Hello& hello) {
    if (ranks_.empty()) size_ = hello.size, first_ = hello.rank;
    if (hello.size != size_) {
      const std::string text = fmt::format("the ranks disagree about their number: rank {} says {}, rank {} says {}",
                                           first_, size_, hello.rank, hello.size);
      size_ = std::max(size_, hello.size);
      decide(Code::invalid_usage, text);
    } else if (hello.rank < 0 || hello.rank >= hello.size) {
      decide(Code::invalid_usage, fmt::format("a process joined as rank {} of {}", hello.rank, hello.size));
    } else if (ranks_.count(hello.rank) != 0) {
      decide(Code::invalid_usage,
             fmt::format("two processes or threads joined as rank {} of {}", hello.rank, hello.size));
    } else {
      // The verdict must reach the ranks before they give up by themselves.
      const std::chrono::milliseconds remaining(
          std::clamp<std::int64_t>(hello.remaining_ms, 0, kLongestDeadline.count()));
      const auto margin = std::clamp<std::chrono::milliseconds>(remaining / 20, 10ms, 1000ms);
      const TimePoint limit = Clock::now() + remaining - margin;
      if (limit < limit_) limit_ = limit, patience_ = std::chrono::milliseconds(hello.patience_ms);
    }
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank)
      if (ranks_.count(rank) == 0) ranks.push_back(rank);
    return ranks;
  }

  void decide(Code code, const std::string& text) {
    code_ = code;
    verdict_ = text;
    for (auto& [rank, joined] : ranks_) {
      post_refusal(joined.socket, code, text);
      told_.insert(rank);
    }
    ranks_.clear();
    limit_ = Clock::now() + kLinger;
  }

  void let_go() {
    for (auto& [rank, joined] : ranks_) {
      Writer writer;
      put(writer, rank == 0 ? Contact{} : ranks_.at(parent_of(rank)).contact);
      post(joined.socket, Kind::go, 0, writer.take());  // one who went away is missed by its neighbours
    }
    met_ = true;
  }

  // Ranks say nothing while they wait, so what comes from them is their end.
  void watch_ranks() {
    if (met_) return;
    for (auto& [rank, joined] : ranks_) {
      std::array<std::byte, 64> ignored;
      const Outcome outcome = joined.socket.read_some(std::span(ignored)).outcome;
      if (outcome == Outcome::blocked || outcome == Outcome::moved) continue;
      const int gone = rank;
      ranks_.erase(gone);
      told_.insert(gone);
      decide(Code::remote, fmt::format("rank {} ended while the ranks were meeting", gone));
      return;
    }
  }

  Door door_;
  std::map<int, Joined> ranks_;
  int size_ = 0;
  int first_ = 0;  // the rank that said the size first
  TimePoint limit_ = TimePoint::max();
  std::chrono::milliseconds patience_{};  // behind limit_, for the text
  bool met_ = false;
  Code code_ = Code::remote;
  std::string verdict_;  // why the ranks cannot meet; empty while they may
  std::set<int> told_;   // the ranks that know it
};

void run_quietly(std::unique_ptr<Rendezvous> rendezvous) noexcept {
  try {
    rendezvous->run();
  } catch (const std::exception&) {
    // Out of memory or descriptors. The connections close now, and each rank says so with the address.
  }
}

}  // namespace

void serve_rendezvous(Socket listener, std::uint64_t nonce, Socket inside) {
  auto rendezvous = std::make_unique<Rendezvous>(std::move(listener), nonce, std::move(inside));
  // Signals are for the threads of the program, not for this one.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(run_quietly, std::move(rendezvous)).detach();
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    fail(Code::system, "start a thread for the rendezvous of a unique id: {}", error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Contact await_parent(Socket& socket, const Hello& hello, TimePoint limit) {
  const Received received = receive(socket, limit);
  require(received.what != Received::What::silence, Code::remote,
          "rank {} of {} was welcomed, but heard nothing more within {}; other ranks are late", hello.rank, hello.size,
          seconds_text(std::chrono::milliseconds(hello.patience_ms)));
  require(received.what == Received::What::message, Code::remote,
          "the process that made the unique id ended while the ranks were meeting (noticed by rank {} of {})",
          hello.rank, hello.size);
  if (received.head.kind == Kind::refusal) throw_refusal(received.payload);
  require(received.head.kind == Kind::go, Code::remote, "the rendezvous of the unique id sent a message of kind {}",
          static_cast<int>(received.head.kind));
  Reader reader(received.payload);
  return get_contact(reader);
}

}  // namespace hoccl
