// Words for errors of collective calls.
#include "src/bootstrap/calls.hpp"

#include <fmt/format.h>

namespace hoccl {

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t kMostEntries = 8;
  std::vector<std::string> entries;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (entries.size() == kMostEntries) {
      entries.push_back(fmt::format("{} more", ranks.size() - i));
      break;
    }
    if (end - i <= 2) end = i + 1;  // two neighbours are no range
    entries.push_back(end - i == 1 ? std::to_string(ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    i = end;
  }
  if (entries.empty()) return "no rank";
  if (entries.size() == 1) return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", entries[0]);
  const std::string last = entries.back();
  entries.pop_back();
  return fmt::format("ranks {} and {}", fmt::join(entries, ", "), last);
}

std::string mismatch_text(int one, Call its_call, int other, Call other_call) {
  return fmt::format("rank {} called {} where rank {} called {}; all ranks must make the same calls in the same order",
                     one, call_name(its_call), other, call_name(other_call));
}

}  // namespace hoccl
