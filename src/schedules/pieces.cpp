#include "src/schedules/pieces.hpp"

namespace hoccl {

void reduce_ring(ProgramBuilder& b, int lane, Seat seat, int parts, Take ring_in, Give ring_out, Give last,
                 const BlockOf& in) {
  for (int u = 0; u + 1 < seat.size; ++u)
    for (int part = 0; part < parts; ++part) {
      const Place mine = in(seat.back(u + 1), part);
      const Give to = u + 2 == seat.size ? last : ring_out;
      b.add(lane, u == 0 ? step::send(mine, to) : step::reduce_send(ring_in, mine, to));
    }
}

void gather_ring(ProgramBuilder& b, int lane, Seat seat, int parts, Take ring_in, Give ring_out, const BlockOf& out,
                 const Stored& stored) {
  for (int u = 1; u < seat.size; ++u)
    for (int part = 0; part < parts; ++part) {
      const int place = seat.back(u);
      const Give to = u + 1 < seat.size ? ring_out : Give{};
      const std::uint32_t steps = b.add(lane, step::receive(ring_in, out(place, part), to));
      if (stored) stored(place, part, steps);
    }
}

Place block_place(Space space, bool own, Rank owner, int parts, int part) {
  return {space, static_cast<std::uint32_t>((own ? 0 : index(owner) * parts) + part)};
}

TwoLevels::TwoLevels(const Groups& g, const Collective& collective, int parts_, Rank rank)
    : groups(g),
      kind(collective.kind),
      parts(parts_),
      me(rank),
      inner{g.per_node(), g.local_of(rank)},
      outer{g.nodes(), g.node_of(rank)} {
  const auto at = [&](int node, int local) { return g.members(node)[static_cast<std::size_t>(local)]; };
  inner_before = at(outer.place, inner.back(1));
  inner_after = at(outer.place, inner.back(-1));
  rail_before = at(outer.back(1), inner.place);
  rail_after = at(outer.back(-1), inner.place);
}

Place TwoLevels::in(int node, int local, int part) const {
  return block_place(Space::in, in_is_own(kind), groups.members(node)[static_cast<std::size_t>(local)], parts, part);
}

Place TwoLevels::out(int node, int local, int part) const {
  return block_place(Space::out, out_is_own(kind), groups.members(node)[static_cast<std::size_t>(local)], parts, part);
}

BlockOf TwoLevels::in_of(int node) const {
  return [this, node](int place, int part) { return in(node, place, part); };
}

BlockOf TwoLevels::out_of(int node) const {
  return [this, node](int place, int part) { return out(node, place, part); };
}

BlockOf TwoLevels::rail_out() const {
  return [this](int place, int part) { return out(place, inner.place, part); };
}

void copy_own(ProgramBuilder& b, int lane, const Collective& collective, int parts, Rank rank) {
  for (int part = 0; part < parts; ++part)
    b.add(lane, step::copy(block_place(Space::in, in_is_own(collective.kind), rank, parts, part),
                           block_place(Space::out, out_is_own(collective.kind), rank, parts, part)));
}

}  // namespace hoccl
