#include "src/exec/executor.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "src/plan/interpret.hpp"

namespace hoccl {

void Executor::launch(const BoundProgram& bound, const Launch& launch) {
  bound_ = &bound;
  launch_ = launch;
  world_.bind(bound, launch_);
}

Executor::State Executor::progress() noexcept {
  bool moved = false;
  const auto& lanes = bound_->program.lanes;
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    HostWorld::LaneState& state = world_.lanes[l];
    if (state.round == launch_.rounds || lanes[l].steps.empty()) continue;
    world_.lane = l;
    switch (fire(lanes[l].steps[state.pc], world_)) {
      case Fired::failed:
        return State::failed;
      case Fired::blocked:
        continue;
      case Fired::moved:
        break;
    }
    moved = true;
    if (++state.pc == lanes[l].steps.size()) state = {0, state.round + 1};
  }
  if (moved) return State::moved;
  if (failed_link() != nullptr) return State::failed;
  if (!lanes_done()) return State::idle;
  const bool drained =
      std::all_of(bound_->gives.begin(), bound_->gives.end(), [](SendLink* l) { return l->drained(); });
  return drained ? State::done : State::idle;
}

bool Executor::lanes_done() const noexcept {
  for (std::size_t l = 0; l < world_.lanes.size(); ++l)
    if (world_.lanes[l].round != launch_.rounds && !bound_->program.lanes[l].steps.empty()) return false;
  return true;
}

const Link* Executor::failed_link() const noexcept {
  for (const ReceiveLink* link : bound_->takes)
    if (link->failed()) return link;
  for (const SendLink* link : bound_->gives)
    if (link->failed()) return link;
  return nullptr;
}

std::string Executor::link_failure() const {
  const Link* link = failed_link();
  return link != nullptr ? link->failure() : "";
}

void Executor::stop() noexcept {
  if (bound_ == nullptr) return;
  for (ReceiveLink* link : bound_->takes) link->let_go();
  // A peer reads for as long as one step takes, or until its next look at the link; this bound is for one that is
  // stopped.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (SendLink* link : bound_->gives)
    while (!link->take_back() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
}

std::vector<Rank> Executor::waiting_for() const {
  std::vector<Rank> peers;
  const auto add = [&](Rank peer) {
    if (std::find(peers.begin(), peers.end(), peer) == peers.end()) peers.push_back(peer);
  };
  const auto& lanes = bound_->program.lanes;
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    if (world_.lanes[l].round == launch_.rounds || lanes[l].steps.empty()) continue;
    const Step& step = lanes[l].steps[world_.lanes[l].pc];
    for (std::size_t i = step.take; i < std::size_t{step.take} + step.takes; ++i)
      if (bound_->takes[i]->front() == nullptr) add(bound_->program.takes[i].peer);
    for (std::size_t i = step.give; i < std::size_t{step.give} + step.gives; ++i)
      if (bound_->gives[i]->direct() != nullptr ? !bound_->gives[i]->direct()->ready()
                                                : bound_->gives[i]->reserve() == nullptr)
        add(bound_->program.gives[i].peer);
  }
  if (lanes_done())
    for (std::size_t i = 0; i < bound_->gives.size(); ++i)
      if (!bound_->gives[i]->drained()) add(bound_->program.gives[i].peer);
  return peers;
}

}  // namespace hoccl
