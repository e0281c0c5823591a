#include "src/verify/verify.hpp"

#include "src/base/error.hpp"
#include "src/verify/facts.hpp"

namespace hoccl {

Report verify(const Plan& plan, const VerifyOptions& options) {
  require(plan.programs.size() <= kMaxVerifiedRanks, Code::invalid_usage,
          "{} ranks: plans of at most {} are verified whole", plan.programs.size(), kMaxVerifiedRanks);
  Report report;
  report.rounds = options.rounds;
  check_shape(plan, report);
  if (!report.proved()) return report;
  check_values(plan, options, report);
  check_order(plan, options, report);
  return report;
}

std::string Report::describe() const {
  if (proved())
    return fmt::format("proved ({} fired: {}, value run and order run)", counted(steps, "step"),
                       counted(rounds, "round"));
  std::string text;
  for (const Finding& f : findings) text += fmt::format("{}: {}\n", f.check, f.text);
  if (more) text += fmt::format("and more: the first {} are shown\n", kMostFindings);
  return text;
}

void Report::note(std::string check, std::string text) {
  if (findings.size() < kMostFindings)
    findings.push_back({std::move(check), std::move(text)});
  else
    more = true;
}

}  // namespace hoccl
