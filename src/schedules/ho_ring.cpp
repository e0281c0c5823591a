// HO-Ring, the hierarchical overlapping ring (PaRO, arXiv 2310.06003; NeurIPS 2024): rings inside the nodes and one
// ring per local rank between them (a rail), at the same time on different blocks. Three lanes:
//
//   reduce   inside the node, node by node in the order in which the network wants them; its last hop goes to lane rail
//   rail     combines what the node summed up with what came over the rail, and passes it on; then gathers on the rail
//   gather   inside the node, what has arrived over the rail (the blocking points are `after` the lane rail)
//
// The rail never waits for the gather lane, and for the reduce lane only where data demand it. Each rank sends N-1
// blocks over the network and N(M-1) inside the node for all-gather or reduce-scatter, and both for all-reduce.
#include <vector>

#include "src/schedules/pieces.hpp"
#include "src/schedules/schedules.hpp"

namespace hoccl {
namespace {

std::string refusal(const Groups& groups, const Collective&) { return refuse_unequal(groups); }

struct Lanes {
  int reduce = 0, rail = 0, gather = 0;
};

// takes: partial sums of the node and of the rail, consecutive so that one step can take both.
struct Ends {
  Take partial_in, rail_in, reduce_in, gather_in;
  Give partial_out, rail_out, reduce_out, gather_out;
};

Ends connect(ProgramBuilder& b, const TwoLevels& w) {
  const std::uint8_t credits = ring_credits(w.parts);
  const bool inside = w.inner.size > 1;
  Ends e;
  if (inside && reduces(w.kind)) {
    e.partial_in = b.incoming({w.inner_before, Label::partial, credits});
    e.partial_out = b.outgoing({w.inner_after, Label::partial, credits});
  }
  if (w.outer.size > 1) {
    e.rail_in = b.incoming({w.rail_before, Label::rail, credits});
    e.rail_out = b.outgoing({w.rail_after, Label::rail, credits});
  }
  if (w.inner.size > 2 && reduces(w.kind)) {
    e.reduce_in = b.incoming({w.inner_before, Label::reduce, credits});
    e.reduce_out = b.outgoing({w.inner_after, Label::reduce, credits});
  }
  if (inside && w.kind != Kind::reduce_scatter) {
    e.gather_in = b.incoming({w.inner_before, Label::gather, credits});
    e.gather_out = b.outgoing({w.inner_after, Label::gather, credits});
  }
  return e;
}

// Lanes reduce and rail up to the rank's own block, which ends in `out` and is given `onward`. Tells which step of
// the rail stored it.
void reduce_both(ProgramBuilder& b, Lanes lanes, const TwoLevels& w, const Ends& e, Give onward, const Stored& stored) {
  const int nodes = w.outer.size, local = w.inner.place;
  const Take both{e.partial_in.first, e.partial_in.count + e.rail_in.count};
  for (int t = 1; t <= nodes; ++t) {
    const int node = w.outer.back(t);
    if (w.inner.size > 1)
      reduce_ring(b, lanes.reduce, w.inner, w.parts, e.reduce_in, e.reduce_out, e.partial_out, w.in_of(node));
    const Take take = t == 1 ? e.partial_in : (w.inner.size > 1 ? both : e.rail_in);
    for (int part = 0; part < w.parts; ++part) {
      const Place mine = w.in(node, local, part);
      const bool last = t == nodes;
      const std::uint32_t steps = b.add(
          lanes.rail,
          step::any(take, mine, take.count > 0, last ? w.out(node, local, part) : Place{}, last ? onward : e.rail_out));
      if (last) stored(node, part, steps);
    }
  }
}

Program program(const Groups& groups, const Collective& collective, int parts, Rank rank) {
  ProgramBuilder b;
  if (groups.ranks() == 1) {
    copy_own(b, b.lane("copy"), collective, parts, rank);
    return b.finish();
  }
  const TwoLevels w(groups, collective, parts, rank);
  const Ends e = connect(b, w);
  const bool gathers = collective.kind != Kind::reduce_scatter, inside = w.inner.size > 1;
  const int nodes = w.outer.size, here = w.outer.place, local = w.inner.place;
  Lanes lanes;
  if (inside && reduces(collective.kind)) lanes.reduce = b.lane("reduce");
  if (reduces(collective.kind) || nodes > 1) lanes.rail = b.lane("rail");
  if (inside && gathers) lanes.gather = b.lane("gather");

  // The blocking points: after how many steps of the rail a block of this rail lies in `out`; 0: it needs no wait.
  std::vector<std::uint32_t> arrived(static_cast<std::size_t>(nodes * parts), 0);
  const Stored note = [&](int node, int part, std::uint32_t steps) {
    arrived[static_cast<std::size_t>(node * parts + part)] = steps;
  };
  if (reduces(collective.kind)) {
    reduce_both(b, lanes, w, e, gathers ? e.rail_out : Give{}, note);
  } else {
    for (int part = 0; part < parts; ++part)
      if (!inside)
        b.add(lanes.rail, step::copy(w.in(here, local, part), w.out(here, local, part), e.rail_out));
      else if (nodes > 1)
        b.add(lanes.rail, step::send(w.in(here, local, part), e.rail_out));
  }
  if (!gathers) return b.finish();
  gather_ring(b, lanes.rail, w.outer, parts, e.rail_in, e.rail_out, w.rail_out(), note);
  if (!inside) return b.finish();

  for (int t = 0; t < nodes; ++t) {
    const int node = w.outer.back(t);
    for (int part = 0; part < parts; ++part) {
      const Place mine = w.out(node, local, part);
      const std::uint32_t steps = arrived[static_cast<std::size_t>(node * parts + part)];
      b.add(lanes.gather, steps == 0 ? step::copy(w.in(here, local, part), mine, e.gather_out)
                                     : step::after(lanes.rail, steps, step::send(mine, e.gather_out)));
    }
    gather_ring(b, lanes.gather, w.inner, parts, e.gather_in, e.gather_out, w.out_of(node));
  }
  return b.finish();
}

}  // namespace

extern const Schedule kHoRing{"ho_ring", "rings inside the nodes and rails between them, both at the same time",
                              refusal, program};

}  // namespace hoccl
