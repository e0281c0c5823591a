// Runs all programs of a plan over values of any kind: the part of a world that symbols and orders share. Lanes are
// tried in turn until none can move; the order does not matter (src/plan/step.hpp). Included by values.cpp and
// order.cpp.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "src/plan/interpret.hpp"
#include "src/verify/verify.hpp"

namespace hoccl {

// World must derive from Run<World, Message> and add the operations on values; see interpret.hpp.
template <class World, class Message>
class Run {
 public:
  using Value = Message;

  Run(const Plan& plan, const VerifyOptions& options, Report& report)
      : plan_(plan), options_(options), report_(report) {
    connect();
    for (std::size_t r = 0; r < plan.programs.size(); ++r) {
      first_lane_.push_back(static_cast<int>(done_.size()));
      for (std::size_t l = 0; l < plan.programs[r].lanes.size(); ++l) done_.push_back(0);
    }
  }

  // True when every lane came to its end.
  bool run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (rank_ = 0; rank_ < static_cast<int>(plan_.programs.size()); ++rank_)
        for (lane_ = 0; lane_ < static_cast<int>(program().lanes.size()); ++lane_) moved |= advance();
    }
    return all_done();
  }

  bool finished(int lane, std::uint32_t steps) const { return done_of(lane) >= round() * length(lane) + steps; }
  bool can_take(int channel) const { return !queue(program_takes()[channel]).empty(); }
  bool can_give(int channel, const Step&) const {
    const auto& pipe = pipes_[static_cast<std::size_t>(program_gives()[channel])];
    return static_cast<int>(pipe.messages.size()) < pipe.credits;
  }
  Message take(int channel) {
    auto& messages = queue(program_takes()[channel]);
    Message m = std::move(messages.front());
    messages.erase(messages.begin());
    return m;
  }
  void give(int channel, const Message& m) { queue(program_gives()[channel]).push_back(m); }
  bool end(const Step&) { return true; }

  // Says where everybody is stuck, and what lies in channels that nobody takes.
  void note_progress() {
    for (rank_ = 0; rank_ < static_cast<int>(plan_.programs.size()); ++rank_)
      for (lane_ = 0; lane_ < static_cast<int>(program().lanes.size()); ++lane_)
        if (length(lane_) != 0 && round() < rounds())
          note("progress",
               "stuck at " +
                   here(program().lanes[static_cast<std::size_t>(lane_)].steps[done_of(lane_) % length(lane_)]));
    for (const auto& [key, number] : numbers_)
      if (const auto& left = pipes_[static_cast<std::size_t>(number)].messages; !left.empty() && report_.proved())
        note("progress", fmt::format("of channel {} from rank {} to rank {}, {} never taken", name_of(std::get<2>(key)),
                                     std::get<0>(key), std::get<1>(key),
                                     left.size() == 1 ? "1 message is" : fmt::format("{} messages are", left.size())));
  }

 protected:
  struct Pipe {
    int credits = 0;
    std::vector<Message> messages;
  };

  World& world() { return static_cast<World&>(*this); }
  const Program& program() const { return plan_.programs[static_cast<std::size_t>(rank_)]; }
  std::size_t length(int lane) const { return program().lanes[static_cast<std::size_t>(lane)].steps.size(); }
  std::size_t done_of(int lane) const {
    return done_[static_cast<std::size_t>(first_lane_[static_cast<std::size_t>(rank_)] + lane)];
  }
  std::size_t round() const { return done_of(lane_) / length(lane_); }
  int global_lane(int lane) const { return first_lane_[static_cast<std::size_t>(rank_)] + lane; }
  int lanes() const { return static_cast<int>(done_.size()); }

  void note(const char* check, std::string text) { report_.note(check, std::move(text)); }
  std::string here(const Step& step) const {
    return fmt::format("rank {}, lane {}, step {} of round {} ({})", rank_,
                       program().lanes[static_cast<std::size_t>(lane_)].name, done_of(lane_) % length(lane_), round(),
                       to_text(program(), step));
  }

  const Plan& plan_;
  const VerifyOptions& options_;
  Report& report_;
  int rank_ = 0, lane_ = 0;

 private:
  using Key = std::tuple<int, int, Label>;

  std::size_t rounds() const { return static_cast<std::size_t>(options_.rounds); }
  const int* program_takes() const { return takes_[static_cast<std::size_t>(rank_)].data(); }
  const int* program_gives() const { return gives_[static_cast<std::size_t>(rank_)].data(); }
  std::vector<Message>& queue(int number) { return pipes_[static_cast<std::size_t>(number)].messages; }
  const std::vector<Message>& queue(int number) const { return pipes_[static_cast<std::size_t>(number)].messages; }

  int pipe(Key key, int credits) {
    const auto [at, fresh] = numbers_.emplace(key, static_cast<int>(pipes_.size()));
    if (fresh) pipes_.push_back({credits + options_.more_credits, {}});
    return at->second;
  }
  void connect() {
    for (std::size_t r = 0; r < plan_.programs.size(); ++r) {
      const int me = static_cast<int>(r);
      takes_.emplace_back();
      gives_.emplace_back();
      for (const Channel& c : plan_.programs[r].takes)
        takes_.back().push_back(pipe({index(c.peer), me, c.label}, c.credits));
      for (const Channel& c : plan_.programs[r].gives)
        gives_.back().push_back(pipe({me, index(c.peer), c.label}, c.credits));
    }
  }

  bool advance() {
    auto& done = done_[static_cast<std::size_t>(global_lane(lane_))];
    const auto& steps = program().lanes[static_cast<std::size_t>(lane_)].steps;
    bool moved = false;
    while (done < steps.size() * rounds() && fire(steps[done % steps.size()], world()) == Fired::moved) {
      world().moved();
      ++done;
      ++report_.steps;
      moved = true;
    }
    return moved;
  }
  bool all_done() const {
    int lane = 0;
    for (const Program& p : plan_.programs)
      for (const Lane& l : p.lanes)
        if (done_[static_cast<std::size_t>(lane++)] != l.steps.size() * rounds()) return false;
    for (const Pipe& p : pipes_)
      if (!p.messages.empty()) return false;
    return true;
  }

  std::map<Key, int> numbers_;
  std::vector<Pipe> pipes_;
  std::vector<std::vector<int>> takes_, gives_;  // by rank: channel → pipe
  std::vector<int> first_lane_;
  std::vector<std::size_t> done_;  // by lane of all ranks: steps fired in all rounds
};

}  // namespace hoccl
