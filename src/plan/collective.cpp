#include "src/plan/collective.hpp"

namespace hoccl {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return "all_reduce";
    case Kind::reduce_scatter:
      return "reduce_scatter";
    case Kind::all_gather:
      return "all_gather";
  }
  return "?";
}

std::optional<Kind> kind_named(std::string_view name) {
  for (const Kind kind : kKinds)
    if (name_of(kind) == name) return kind;
  return std::nullopt;
}

bool in_is_own(Kind kind) { return kind == Kind::all_gather; }
bool out_is_own(Kind kind) { return kind == Kind::reduce_scatter; }
bool reduces(Kind kind) { return kind != Kind::all_gather; }

std::uint32_t in_blocks(const Collective& c, int parts) {
  return static_cast<std::uint32_t>((in_is_own(c.kind) ? 1 : c.ranks) * parts);
}

std::uint32_t out_blocks(const Collective& c, int parts) {
  return static_cast<std::uint32_t>((out_is_own(c.kind) ? 1 : c.ranks) * parts);
}

std::uint32_t shared_in(const Collective& c, int parts, Rank rank, std::uint32_t block) {
  return in_is_own(c.kind) ? static_cast<std::uint32_t>(index(rank) * parts) + block : block;
}

std::uint32_t shared_out(const Collective& c, int parts, Rank rank, std::uint32_t block) {
  return out_is_own(c.kind) ? static_cast<std::uint32_t>(index(rank) * parts) + block : block;
}

Holding before(const Collective& c, int parts, Rank rank, std::uint32_t block) {
  return {shared_in(c, parts, rank, block), false, rank};
}

Holding after(const Collective& c, int parts, Rank rank, std::uint32_t block) {
  const std::uint32_t whole = shared_out(c, parts, rank, block);
  const Rank owner = static_cast<Rank>(whole / static_cast<std::uint32_t>(parts));
  return {whole, reduces(c.kind), owner};
}

}  // namespace hoccl
