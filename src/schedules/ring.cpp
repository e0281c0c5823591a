// The flat ring: all ranks in node order, so that each node is entered and left once. All-reduce is reduce-scatter
// running into all-gather without a barrier. P ranks: 2(P-1) messages a rank and part (P-1 for the two others), of
// which as many cross each link between nodes.
#include <algorithm>

#include "src/schedules/pieces.hpp"
#include "src/schedules/schedules.hpp"

namespace hoccl {
namespace {

std::string refusal(const Groups&, const Collective&) { return {}; }

// A link between nodes stands for all rails that could run there.
std::uint8_t width_between(const Groups& groups, Rank a, Rank b) {
  if (groups.node_of(a) == groups.node_of(b)) return 1;
  const auto rails = std::min(groups.members(groups.node_of(a)).size(), groups.members(groups.node_of(b)).size());
  return static_cast<std::uint8_t>(std::min<std::size_t>(rails, 8));
}

Program program(const Groups& groups, const Collective& collective, int parts, Rank rank) {
  ProgramBuilder b;
  const int lane = b.lane("ring");
  const Seat seat{groups.ranks(), groups.place_in_order(rank)};
  if (seat.size == 1) {
    copy_own(b, lane, collective, parts, rank);
    return b.finish();
  }
  const auto at = [&](int place) { return groups.node_order()[static_cast<std::size_t>(place)]; };
  const Rank before = at(seat.back(1)), after = at(seat.back(-1));
  const Take from = b.incoming({before, Label::ring, ring_credits(parts), width_between(groups, before, rank)});
  const Give to = b.outgoing({after, Label::ring, ring_credits(parts), width_between(groups, rank, after)});
  const BlockOf in = [&](int place, int part) {
    return block_place(Space::in, in_is_own(collective.kind), at(place), parts, part);
  };
  const BlockOf out = [&](int place, int part) {
    return block_place(Space::out, out_is_own(collective.kind), at(place), parts, part);
  };

  const bool gathers = collective.kind != Kind::reduce_scatter;
  const Give onward = gathers ? to : Give{};
  if (reduces(collective.kind)) reduce_ring(b, lane, seat, parts, from, to, to, in);
  for (int part = 0; part < parts; ++part)
    b.add(lane, reduces(collective.kind) ? step::reduce(from, in(seat.place, part), out(seat.place, part), onward)
                                         : step::copy(in(seat.place, part), out(seat.place, part), onward));
  if (gathers) gather_ring(b, lane, seat, parts, from, to, out);
  return b.finish();
}

}  // namespace

extern const Schedule kRing{"ring", "one ring over all ranks, node by node", refusal, program};

}  // namespace hoccl
