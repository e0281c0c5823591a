#include "src/verify/verify.hpp"

#include "src/base/error.hpp"

namespace hoccl {

Report verify(const Plan& plan, const VerifyOptions& options) {
  require(plan.programs.size() <= kMaxVerifiedRanks, Code::invalid_usage,
          "{} ranks: plans of at most {} are verified whole", plan.programs.size(), kMaxVerifiedRanks);
  Report report;
  check_shape(plan, report);
  if (!report.proved()) return report;
  check_values(plan, options, report);
  check_order(plan, options, report);
  return report;
}

std::string Report::describe() const {
  if (proved()) return fmt::format("proved ({} steps)", steps);
  std::string text;
  for (const Finding& f : findings) text += fmt::format("{}: {}\n", f.check, f.text);
  return text;
}

}  // namespace hoccl
