// Two levels, one after the other: the baseline that the overlap of ho_ring is measured against. The same rings and the
// same bytes, in one lane: reduce inside the node, ring on the rail, gather inside the node. Partial sums wait in
// scratch until the network's turn.
#include "src/schedules/pieces.hpp"
#include "src/schedules/schedules.hpp"

namespace hoccl {
namespace {

std::string refusal(const Groups& groups, const Collective&) { return refuse_unequal(groups); }

struct Ends {
  Take reduce_in, rail_in, gather_in;
  Give reduce_out, rail_out, gather_out;
};

Ends connect(ProgramBuilder& b, const TwoLevels& w) {
  const std::uint8_t credits = ring_credits(w.parts);
  Ends e;
  if (w.outer.size > 1) {
    e.rail_in = b.incoming({w.rail_before, Label::rail, credits});
    e.rail_out = b.outgoing({w.rail_after, Label::rail, credits});
  }
  if (w.inner.size > 1 && reduces(w.kind)) {
    e.reduce_in = b.incoming({w.inner_before, Label::reduce, credits});
    e.reduce_out = b.outgoing({w.inner_after, Label::reduce, credits});
  }
  if (w.inner.size > 1 && w.kind != Kind::reduce_scatter) {
    e.gather_in = b.incoming({w.inner_before, Label::gather, credits});
    e.gather_out = b.outgoing({w.inner_after, Label::gather, credits});
  }
  return e;
}

// Reduces every node's slice inside this node, then along the rail; the own block ends in `out` and is given `onward`.
void reduce_both(ProgramBuilder& b, int lane, const TwoLevels& w, const Ends& e, Give onward) {
  const int nodes = w.outer.size, here = w.outer.place, local = w.inner.place;
  const auto partial = [&](int node, int part) {
    if (w.inner.size == 1) return w.in(node, local, part);
    return Place{Space::tmp, static_cast<std::uint32_t>(node * w.parts + part)};
  };
  if (w.inner.size > 1)
    for (int t = 1; t <= nodes; ++t) {
      const int node = w.outer.back(t);
      reduce_ring(b, lane, w.inner, w.parts, e.reduce_in, e.reduce_out, e.reduce_out, w.in_of(node));
      for (int part = 0; part < w.parts; ++part)
        b.add(lane, step::reduce(e.reduce_in, w.in(node, local, part),
                                 nodes == 1 ? w.out(here, local, part) : partial(node, part)));
    }
  if (nodes > 1) {
    reduce_ring(b, lane, w.outer, w.parts, e.rail_in, e.rail_out, e.rail_out, partial);
    for (int part = 0; part < w.parts; ++part)
      b.add(lane, step::reduce(e.rail_in, partial(here, part), w.out(here, local, part), onward));
    if (w.inner.size > 1) b.scratch(static_cast<std::uint32_t>(nodes * w.parts));
  }
}

Program program(const Groups& groups, const Collective& collective, int parts, Rank rank) {
  ProgramBuilder b;
  const int lane = b.lane("phases");
  if (groups.ranks() == 1) {
    copy_own(b, lane, collective, parts, rank);
    return b.finish();
  }
  const TwoLevels w(groups, collective, parts, rank);
  const Ends e = connect(b, w);
  const int here = w.outer.place, local = w.inner.place;
  const bool gathers = collective.kind != Kind::reduce_scatter;

  if (reduces(collective.kind)) {
    reduce_both(b, lane, w, e, gathers ? e.rail_out : Give{});
  } else {
    for (int part = 0; part < parts; ++part)
      b.add(lane, step::copy(w.in(here, local, part), w.out(here, local, part), e.rail_out));
  }
  if (!gathers) return b.finish();
  gather_ring(b, lane, w.outer, parts, e.rail_in, e.rail_out, w.rail_out());
  if (w.inner.size > 1)
    for (int t = 0; t < w.outer.size; ++t) {
      const int node = w.outer.back(t);
      for (int part = 0; part < parts; ++part) b.add(lane, step::send(w.out(node, local, part), e.gather_out));
      gather_ring(b, lane, w.inner, parts, e.gather_in, e.gather_out, w.out_of(node));
    }
  return b.finish();
}

}  // namespace

extern const Schedule kTwoLevel{"two_level", "rings inside the nodes and rails between them, one after the other",
                                refusal, program};

}  // namespace hoccl
