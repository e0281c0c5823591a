// What a collective promises: how its buffers are cut into blocks, what each block holds before and must hold after.
// Schedules read the layout, src/verify/values.cpp checks the promise. Values only.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "src/base/types.hpp"

namespace hoccl {

enum class Kind : std::uint8_t { all_reduce, reduce_scatter, all_gather };
inline constexpr Kind kKinds[] = {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather};

std::string_view name_of(Kind kind);
std::optional<Kind> kind_named(std::string_view name);

struct Collective {
  Kind kind = Kind::all_reduce;
  int ranks = 1;

  bool operator==(const Collective&) const = default;
};

// A block of the whole problem, and which ranks' contributions a value of it sums up. Block numbers run over
// ranks x parts: outer block r (that of rank r) consists of parts r*parts … r*parts+parts-1.
struct Holding {
  std::uint32_t block = 0;
  bool everyone = false;  // the contributions of all ranks; otherwise of `from` alone
  Rank from{};
};

// True where one space of the collective holds only the rank's own outer block instead of all of them.
bool in_is_own(Kind kind);
bool out_is_own(Kind kind);
bool reduces(Kind kind);

std::uint32_t in_blocks(const Collective& collective, int parts);
std::uint32_t out_blocks(const Collective& collective, int parts);

Holding before(const Collective& collective, int parts, Rank rank, std::uint32_t in_block);
Holding after(const Collective& collective, int parts, Rank rank, std::uint32_t out_block);

// In place, `in` and `out` share memory: the block of the whole buffer under which a block of `in`, or of `out`, lies.
std::uint32_t shared_in(const Collective& collective, int parts, Rank rank, std::uint32_t in_block);
std::uint32_t shared_out(const Collective& collective, int parts, Rank rank, std::uint32_t out_block);

}  // namespace hoccl
