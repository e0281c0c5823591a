// The pieces that schedules are composed of: a ring that reduces and scatters, and a ring that gathers. A ring is given
// as the seat of one member; blocks are named by the place of their owner in the ring. Read next: ring.cpp (one ring),
// two_level.cpp (one level after the other), ho_ring.cpp (both levels at the same time).
//
// Both rings send `parts` messages before they take the first, and then take and give in one step; each of their
// channels therefore needs parts + 1 credits.
#pragma once

#include <functional>

#include "src/plan/builder.hpp"
#include "topology/groups.hpp"

namespace hoccl {

// One member's seat: its place among `size` members.
struct Seat {
  int size = 1;
  int place = 0;

  int back(int steps) const { return ((place - steps) % size + size) % size; }
};

inline std::uint8_t ring_credits(int parts) { return static_cast<std::uint8_t>(parts + 1); }

// Names block `part` of the member at `place`.
using BlockOf = std::function<Place(int place, int part)>;

// The partial sums of a ring up to, not including, the step that completes this seat's own block: sends the block
// of the seat before, then takes, combines with its own contribution `in` and gives on. Each block so arrives at its
// owner, who takes it from the ring (finish_reduce or a step of another lane) as the last contributor. The last round
// gives on `last` instead of `ring`, where the owner takes its block.
void reduce_ring(ProgramBuilder& b, int lane, Seat seat, int parts, Take ring_in, Give ring_out, Give last,
                 const BlockOf& in);

// The blocks of all others, each stored as `out` and passed on; the seat's own block must have been given before.
// `stored(place, part, steps)` hears how many steps the lane has once a block is stored.
using Stored = std::function<void(int place, int part, std::uint32_t steps)>;
void gather_ring(ProgramBuilder& b, int lane, Seat seat, int parts, Take ring_in, Give ring_out, const BlockOf& out,
                 const Stored& stored = {});

// Rank `rank`'s part of outer block `owner`, in a space that holds all outer blocks or, when `own`, only its own.
Place block_place(Space space, bool own, Rank owner, int parts, int part);

// Where a rank is in two levels, and what that means for blocks. Requires groups.equal().
struct TwoLevels {
  TwoLevels(const Groups& groups, const Collective& collective, int parts, Rank rank);

  Place in(int node, int local, int part) const;
  Place out(int node, int local, int part) const;
  // The blocks that local ranks hold of one node's slice, as a ring inside the node names them.
  BlockOf in_of(int node) const;
  BlockOf out_of(int node) const;
  // The blocks of this rank's rail, as the ring between the nodes names them.
  BlockOf rail_out() const;

  const Groups& groups;
  Kind kind;
  int parts;
  Rank me;
  Seat inner, outer;
  Rank inner_before, inner_after, rail_before, rail_after;
};

// Copies the rank's own block from in to out: all that one rank alone has to do.
void copy_own(ProgramBuilder& b, int lane, const Collective& collective, int parts, Rank rank);

}  // namespace hoccl
