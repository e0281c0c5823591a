// The collective calls of a bootstrap and the words for them in errors, shared by its two implementations.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hoccl {

enum class Call : std::uint8_t { exchange, swap, barrier };

constexpr std::string_view call_name(Call call) {
  return call == Call::exchange ? "exchange" : call == Call::swap ? "swap" : "barrier";
}

// "rank 3", "ranks 0, 4-7 and 12"; `ranks` ascending. A long list is cut after a few entries.
std::string ranks_text(const std::vector<int>& ranks);

// What the rank that notices says to all when ranks do not make the same calls in the same order.
std::string mismatch_text(int one, Call its_call, int other, Call other_call);

}  // namespace hoccl
