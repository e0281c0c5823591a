// What can be seen without running: channels match on both ends and have one producer and one consumer lane, places
// exist, parts of steps make sense.
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "src/verify/facts.hpp"
#include "src/verify/verify.hpp"

namespace hoccl {
namespace {

class Shape {
 public:
  Shape(const Plan& plan, Report& report) : plan_(plan), report_(report) {}

  void check() {
    const auto ranks = static_cast<std::size_t>(plan_.collective.ranks);
    if (plan_.programs.size() != ranks)
      return note(fmt::format("{} for {}", counted(std::ssize(plan_.programs), "program"),
                              counted(plan_.collective.ranks, "rank")));
    for (std::size_t r = 0; r < ranks; ++r) {
      rank_ = r;
      for (const Step* step : steps_of(plan_.programs[r])) check_step(plan_.programs[r], *step);
      check_lanes(plan_.programs[r]);
    }
    check_channels();
  }

 private:
  void note(std::string text) { report_.note("shape", std::move(text)); }

  static std::vector<const Step*> steps_of(const Program& program) {
    std::vector<const Step*> all;
    for (const Lane& lane : program.lanes)
      for (const Step& step : lane.steps) all.push_back(&step);
    return all;
  }

  std::uint32_t blocks_in(Space space, const Program& program) const {
    switch (space) {
      case Space::in:
        return in_blocks(plan_.collective, plan_.parts);
      case Space::out:
        return out_blocks(plan_.collective, plan_.parts);
      case Space::tmp:
        return program.tmp_blocks;
      case Space::none:
        break;
    }
    return 0;
  }

  void check_step(const Program& program, const Step& s) {
    const std::string where = fmt::format("rank {}: {}: ", rank_, to_text(program, s));
    if (s.takes > kMaxTakes || std::size_t{s.take} + s.takes > program.takes.size())
      note(where + "takes from no channel");
    if (s.gives > kMaxGives || std::size_t{s.give} + s.gives > program.gives.size())
      note(where + "gives to no channel");
    for (const Place place : {s.with(), s.into()})
      if (place && place.block >= blocks_in(place.space, program)) note(where + "names a block that is not there");
    if (s.into_space == Space::in) note(where + "writes the input");
    const int sources = s.takes + (s.with() ? 1 : 0);
    if (s.combine ? sources < 2 : sources != 1) note(where + fmt::format("has {}", counted(sources, "source")));
    if (!s.into() && s.gives == 0) note(where + "has no effect");
    if (s.after_steps != 0 &&
        (s.after_lane >= program.lanes.size() || s.after_steps > program.lanes[s.after_lane].steps.size()))
      note(where + "waits for a step that is not there");
  }

  // One lane alone may take from, or give to, a channel.
  void check_lanes(const Program& program) {
    std::map<int, std::size_t> taker, giver;
    for (std::size_t lane = 0; lane < program.lanes.size(); ++lane)
      for (const Step& s : program.lanes[lane].steps) {
        for (int i = 0; i < s.takes; ++i)
          if (taker.emplace(s.take + i, lane).first->second != lane)
            note(fmt::format("rank {}: two lanes take from channel {}", rank_, s.take + i));
        for (int i = 0; i < s.gives; ++i)
          if (giver.emplace(s.give + i, lane).first->second != lane)
            note(fmt::format("rank {}: two lanes give to channel {}", rank_, s.give + i));
      }
  }

  void check_channels() {
    using Key = std::tuple<int, int, Label>;
    std::map<Key, Channel> gives, takes;
    for (std::size_t r = 0; r < plan_.programs.size(); ++r) {
      const int me = static_cast<int>(r);
      for (const Channel& c : plan_.programs[r].gives)
        if (!gives.emplace(Key{me, index(c.peer), c.label}, c).second)
          note(fmt::format("two channels {} from rank {} to rank {}", name_of(c.label), me, index(c.peer)));
      for (const Channel& c : plan_.programs[r].takes)
        if (!takes.emplace(Key{index(c.peer), me, c.label}, c).second)
          note(fmt::format("two channels {} from rank {} to rank {}", name_of(c.label), index(c.peer), me));
    }
    for (const auto& [key, give] : gives) {
      const auto at = takes.find(key);
      const std::string what = fmt::format("channel {} from rank {} to rank {}", name_of(std::get<2>(key)),
                                           std::get<0>(key), std::get<1>(key));
      if (at == takes.end())
        note(what + " has no taker");
      else if (at->second.credits != give.credits || at->second.width != give.width)
        note(what + " differs on its two ends");
      if (give.credits == 0) note(what + " has no credits");
    }
    for (const auto& [key, take] : takes)
      if (!gives.contains(key))
        note(fmt::format("channel {} from rank {} to rank {} has no giver", name_of(std::get<2>(key)), std::get<0>(key),
                         std::get<1>(key)));
  }

  const Plan& plan_;
  Report& report_;
  std::size_t rank_ = 0;
};

}  // namespace

void check_shape(const Plan& plan, Report& report) { Shape(plan, report).check(); }

}  // namespace hoccl
