// Direct exchange: every rank sends each other rank its block at once and combines its own block from all ranks in as
// few steps as kMaxTakes allows; all-reduce then gives the finished block to all. One message latency for all-gather
// and reduce-scatter, two for all-reduce, and P-1 messages a rank and phase: for small sizes, and for ranks that share
// memory.
#include <algorithm>

#include <fmt/format.h>

#include "src/schedules/pieces.hpp"
#include "src/schedules/schedules.hpp"

namespace hoccl {
namespace {

std::string refusal(const Groups& groups, const Collective&) {
  // Step::take and the label space of channels would allow more; the number of links, its square, does not pay.
  return groups.ranks() <= 64 ? "" : fmt::format("{} ranks: direct serves 64 at most", groups.ranks());
}

// One rank's view: channels by distance, peer d+1 places ahead (gives) or behind (takes), so that not all ranks begin
// with the same peer.
struct Star {
  const Collective& collective;
  int parts;
  int me;
  int others;

  Rank ahead(int d) const { return static_cast<Rank>((me + d + 1) % collective.ranks); }
  Rank behind(int d) const { return static_cast<Rank>((me + collective.ranks - d - 1) % collective.ranks); }
  Place in(Rank owner, int part) const {
    return block_place(Space::in, in_is_own(collective.kind), owner, parts, part);
  }
  Place out(Rank owner, int part) const {
    return block_place(Space::out, out_is_own(collective.kind), owner, parts, part);
  }
  Place mine_in(int part) const { return in(static_cast<Rank>(me), part); }
  Place mine_out(int part) const { return out(static_cast<Rank>(me), part); }
};

// The own block from all ranks, eight at a time; the sum waits in scratch in between. The last step stores it and gives
// it to the first eight peers.
void combine_own(ProgramBuilder& b, int lane, const Star& star, int part, Give onward) {
  for (int first = 0; first < star.others; first += kMaxTakes) {
    const int count = std::min(kMaxTakes, star.others - first);
    const bool last = first + count == star.others;
    const Place scratch{Space::tmp, static_cast<std::uint32_t>(part)};
    b.add(lane, step::reduce({first, count}, first == 0 ? star.mine_in(part) : scratch,
                             last ? star.mine_out(part) : scratch, last ? onward : Give{}));
  }
  if (star.others > kMaxTakes) b.scratch(static_cast<std::uint32_t>(star.parts));
}

Program program(const Groups& groups, const Collective& collective, int parts, Rank rank) {
  ProgramBuilder b;
  const int lane = b.lane("direct");
  if (groups.ranks() == 1) {
    copy_own(b, lane, collective, parts, rank);
    return b.finish();
  }
  const Star star{collective, parts, index(rank), groups.ranks() - 1};
  for (int d = 0; d < star.others; ++d) b.incoming({star.behind(d), Label::direct, ring_credits(parts)});
  for (int d = 0; d < star.others; ++d) b.outgoing({star.ahead(d), Label::direct, ring_credits(parts)});

  const bool gathers = collective.kind != Kind::reduce_scatter;
  const Give first_peers = gathers ? Give{0, std::min(kMaxGives, star.others)} : Give{};
  if (reduces(collective.kind))
    for (int d = 0; d < star.others; ++d)
      for (int part = 0; part < parts; ++part) b.add(lane, step::send(star.in(star.ahead(d), part), {d, 1}));
  for (int part = 0; part < parts; ++part) {
    if (reduces(collective.kind))
      combine_own(b, lane, star, part, first_peers);
    else
      b.add(lane, step::copy(star.mine_in(part), star.mine_out(part), first_peers));
    for (int d = kMaxGives; gathers && d < star.others; d += kMaxGives)
      b.add(lane, step::send(star.mine_out(part), {d, std::min(kMaxGives, star.others - d)}));
  }
  if (gathers)
    for (int part = 0; part < parts; ++part)
      for (int d = 0; d < star.others; ++d) b.add(lane, step::receive({d, 1}, star.out(star.behind(d), part)));
  return b.finish();
}

}  // namespace

extern const Schedule kDirect{"direct", "every rank exchanges with every other at once", refusal, program};

}  // namespace hoccl
