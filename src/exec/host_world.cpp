#include <cstring>

#include "src/exec/executor.hpp"

namespace hoccl {

void HostWorld::bind(const BoundProgram& bound, const Launch& launch) {
  bound_ = &bound;
  launch_ = &launch;
  lanes.assign(bound.program.lanes.size(), {});
  fronts_.assign(bound.takes.size(), nullptr);
  tmp_counts_.assign(bound.program.tmp_blocks, Count(0));
  const Reduction& r = launch.reduction;
  const bool averages = reduces(bound.kind) && r.op == Op::avg;
  scales_ = averages && row(r.type).floating;
  divides_ = averages && !row(r.type).floating;
  failure_.clear();
}

bool HostWorld::finished(int other, std::uint32_t steps) const noexcept {
  const LaneState& o = lanes[static_cast<std::size_t>(other)];
  const std::uint32_t round = lanes[lane].round;
  return o.round > round || (o.round == round && o.pc >= steps);
}

HostWorld::Extent HostWorld::extent(Place place) const noexcept {
  if (place.space == Space::tmp) return {launch_->tmp + place.block * size_of(launch_->slot), tmp_counts_[place.block]};
  const bool input = place.space == Space::in;
  const Span s = (input ? launch_->in_cut : launch_->out_cut).span(place.block, lanes[lane].round);
  // The plan never writes the input (src/verify/shape.cpp), so casting const away is safe.
  std::byte* base = input ? const_cast<std::byte*>(launch_->in) : launch_->out;
  return {base + bytes_of(s.first, launch_->reduction.type).value, s.count};
}

// How many elements the step moves: what its places say; scratch and forwarded messages say what they hold.
Count HostWorld::length(const Step& step) const noexcept {
  if (step.with()) return extent(step.with()).count;
  if (step.into() && step.into_space != Space::tmp) return extent(step.into()).count;
  const Slot* slot = fronts_[step.take];
  return Count(slot->bytes.value / row(launch_->reduction.type).bytes);
}

bool HostWorld::scaled(const Step& step) const noexcept { return scales_ && step.with_space == Space::in; }

// Does the step's value lie in the caller's memory once it has happened? Scratch is written again by the next round, so
// it always travels by value.
bool HostWorld::has_home(const Step& step) const noexcept {
  if (step.into()) return step.into_space != Space::tmp;
  return !step.combine && step.with() && step.with_space != Space::tmp && !scaled(step);
}

bool HostWorld::can_give(int channel, const Step& step) const noexcept {
  SendLink& link = *bound_->gives[static_cast<std::size_t>(channel)];
  if (Direct* direct = has_home(step) ? link.direct() : nullptr) return direct->ready();
  return link.reserve() != nullptr;
}

void HostWorld::begin(const Step& step) noexcept {
  n_sources_ = n_destinations_ = 0;
  count_ = length(step);
  home_ = nullptr;
  if (has_home(step)) home_ = extent(step.into() ? step.into() : step.with()).data;
}

HostWorld::Value HostWorld::take(int channel) noexcept {
  sources_[n_sources_++] = fronts_[static_cast<std::size_t>(channel)]->data;
  return {};
}

HostWorld::Value HostWorld::load(Place place) noexcept {
  sources_[n_sources_++] = extent(place).data;
  return {};
}

void HostWorld::store(Place place, Value) noexcept {
  destinations_[n_destinations_++] = extent(place).data;
  if (place.space == Space::tmp) tmp_counts_[place.block] = count_;
}

void HostWorld::give(int channel, Value) noexcept {
  SendLink& link = *bound_->gives[static_cast<std::size_t>(channel)];
  if (home_ == nullptr || link.direct() == nullptr) destinations_[n_destinations_++] = link.reserve();
}

// Every message must belong to this run and be as long as the plan says.
bool HostWorld::check_messages(const Step& step) noexcept {
  const std::int64_t want = bytes_of(count_, launch_->reduction.type).value;
  for (int i = 0; i < step.takes; ++i) {
    const Slot& slot = *fronts_[static_cast<std::size_t>(step.take + i)];
    const int peer = index(bound_->program.takes[static_cast<std::size_t>(step.take + i)].peer);
    if (slot.tag != launch_->tag)
      failure_ = fmt::format(
          "rank {} is in another operation than this rank: they differ in collective, count, type, "
          "reduction or order of calls",
          peer);
    else if (slot.bytes.value != want)
      failure_ = fmt::format("rank {} sent {} bytes where {} were due", peer, slot.bytes.value, want);
    else
      continue;
    return false;
  }
  return true;
}

bool HostWorld::end(const Step& step) noexcept {
  if (!check_messages(step)) return false;
  if (n_destinations_ > 0 && count_.value > 0) {
    const bool divide = divides_ && step.combine && step.into_space == Space::out;
    device_.combine(launch_->reduction, {{destinations_, static_cast<std::size_t>(n_destinations_)},
                                         {sources_, static_cast<std::size_t>(n_sources_)},
                                         count_,
                                         scaled(step),
                                         divide});
  }
  const Bytes bytes = bytes_of(count_, launch_->reduction.type);
  for (int i = 0; i < step.gives; ++i) {
    SendLink& link = *bound_->gives[static_cast<std::size_t>(step.give + i)];
    if (Direct* direct = home_ != nullptr ? link.direct() : nullptr)
      direct->publish(home_, bytes, launch_->tag);
    else
      link.commit(bytes, launch_->tag);
  }
  for (int i = 0; i < step.takes; ++i) bound_->takes[static_cast<std::size_t>(step.take + i)]->release();
  return true;
}

}  // namespace hoccl
