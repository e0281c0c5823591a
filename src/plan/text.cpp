// Plan ⇄ text, one line a step; docs/plan.md states the form. What is printed can be read back and is then equal.
// Reading checks the form and that numbers fit; whether a plan makes sense is for src/verify to say. Parts of a step
// that are absent are not printed, and are zero when read.
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "src/base/error.hpp"
#include "src/plan/plan.hpp"

namespace hoccl {
namespace {

constexpr std::array<std::string_view, 6> kLabels = {"ring", "reduce", "partial", "rail", "gather", "direct"};
constexpr std::array<std::string_view, 4> kSpaces = {"none", "in", "out", "tmp"};
constexpr std::string_view kUnnamed = "-";  // stands for an empty name

// "rail<4": what a channel is, for the reader; the number before it is what counts.
std::string note(const std::vector<Channel>& channels, int number, char direction) {
  if (number >= static_cast<int>(channels.size())) return "?";
  const Channel& channel = channels[static_cast<std::size_t>(number)];
  return fmt::format("{}{}{}", name_of(channel.label), direction, index(channel.peer));
}

void append_channels(std::string& text, std::string_view verb, const std::vector<Channel>& channels, int first,
                     int count, char direction) {
  if (count > 0) text += fmt::format(" {}", verb);
  for (int i = first; i < first + count; ++i) text += fmt::format(" {}({})", i, note(channels, i, direction));
}

std::string name_or_dash(const std::string& name) { return name.empty() ? std::string(kUnnamed) : name; }

void append_ends(std::string& text, std::string_view verb, const std::vector<Channel>& channels,
                 std::string_view preposition) {
  for (std::size_t i = 0; i < channels.size(); ++i)
    text += fmt::format("{} {} {} {} {} credits {} width {}\n", verb, i, name_of(channels[i].label), preposition,
                        index(channels[i].peer), channels[i].credits, channels[i].width);
}

// Words of one line, in order. Blanks and round brackets part words; "(…)" is one word.
class Line {
 public:
  Line(std::string_view text, int number) : rest_(text), number_(number) { skip_blanks(); }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    fail(Code::invalid_argument, "plan text, line {}: {}", number_, fmt::format(text, std::forward<Args>(args)...));
  }

  bool done() const { return rest_.empty(); }
  std::string_view peek() const { return rest_.substr(0, length()); }
  std::string_view word(std::string_view what) {
    if (done()) refuse("the line ends where {} is expected", what);
    const std::string_view found = peek();
    rest_.remove_prefix(found.size());
    skip_blanks();
    return found;
  }
  bool accept(std::string_view expected) {
    if (done() || peek() != expected) return false;
    word(expected);
    return true;
  }
  void expect(std::string_view expected) {
    const std::string_view found = word(fmt::format("'{}'", expected));
    if (found != expected) refuse("'{}' where '{}' is expected", found, expected);
  }
  void expect_end() const {
    if (!done()) refuse("'{}' is more than the line should hold", rest_);
  }
  template <class Number>
  Number number(std::string_view what) {
    return to_number<Number>(word(what), what);
  }
  template <class Number>
  Number to_number(std::string_view found, std::string_view what) const {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), value);
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<Number>::max());
    if (error != std::errc() || end != found.data() + found.size() || value > most)
      refuse("'{}' is not {}, a number from 0 to {}", found, what, most);
    return static_cast<Number>(value);
  }
  template <std::size_t N>
  std::size_t one_of(const std::array<std::string_view, N>& names, std::string_view found,
                     std::string_view what) const {
    for (std::size_t i = 0; i < N; ++i)
      if (names[i] == found) return i;
    refuse("'{}' is not {}: one of {}", found, what, fmt::join(names, ", "));
  }

 private:
  std::size_t length() const {
    if (rest_.front() == '(') return std::min(rest_.find(')'), rest_.size() - 1) + 1;
    return std::min(rest_.find_first_of(" \t("), rest_.size());
  }
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r"), rest_.size())); }

  std::string_view rest_;
  int number_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Plan plan() {
    read_header();
    for (bool ended = false; !ended;) {
      require(next(), Code::invalid_argument, "plan text, line {}: the text is cut off; a plan's last line is 'end'",
              number_);
      ended = line_->accept("end");
      if (!ended) read_line();
    }
    line_->expect_end();
    finish_lane();
    if (static_cast<int>(plan_.programs.size()) != plan_.collective.ranks)
      line_->refuse("the plan ends after {} ranks of {}", plan_.programs.size(), plan_.collective.ranks);
    if (next()) line_->refuse("'{}' after the end of the plan", line_->peek());
    return std::move(plan_);
  }

 private:
  // The next line that is neither empty nor a comment.
  bool next() {
    while (!rest_.empty()) {
      const std::size_t end = std::min(rest_.find('\n'), rest_.size());
      line_.emplace(rest_.substr(0, end), ++number_);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      if (!line_->done() && line_->peek().front() != '#') return true;
    }
    return false;
  }

  void read_header() {
    require(next(), Code::invalid_argument, "plan text, line {}: nothing there; a plan begins with 'plan'", number_);
    line_->expect("plan");
    const std::string_view name = line_->word("the schedule's name");
    plan_.schedule = name == kUnnamed ? "" : name;
    const std::string_view collective = line_->word("a collective");
    const std::optional<Kind> kind = kind_named(collective);
    if (!kind) line_->refuse("'{}' is not a collective", collective);
    line_->expect("ranks");
    plan_.collective = {*kind, line_->number<int>("the number of ranks")};
    line_->expect("parts");
    plan_.parts = line_->number<int>("the number of parts");
    line_->expect_end();
  }

  void read_line() {
    if (line_->accept("rank")) return read_rank();
    if (plan_.programs.empty()) line_->refuse("'{}' where 'rank 0' is expected", line_->peek());
    if (line_->accept("take")) return read_channel(program().takes, "from");
    if (line_->accept("give")) return read_channel(program().gives, "to");
    if (line_->accept("lane")) return read_lane();
    if (program().lanes.empty())
      line_->refuse("'{}' where 'take', 'give', 'lane' or 'rank' is expected", line_->peek());
    read_step();
  }

  void read_rank() {
    finish_lane();
    const int rank = line_->number<int>("a rank");
    if (rank != static_cast<int>(plan_.programs.size()) || rank >= plan_.collective.ranks)
      line_->refuse("rank {} where rank {} of {} is expected", rank, plan_.programs.size(), plan_.collective.ranks);
    plan_.programs.emplace_back();
    line_->expect("tmp");
    program().tmp_blocks = line_->number<std::uint32_t>("the number of scratch blocks");
    line_->expect_end();
  }

  void read_channel(std::vector<Channel>& channels, std::string_view preposition) {
    const auto place = line_->number<std::uint16_t>("the channel's number");
    if (place != channels.size()) line_->refuse("channel {} where channel {} is expected", place, channels.size());
    Channel channel;
    channel.label = static_cast<Label>(line_->one_of(kLabels, line_->word("a label"), "a label"));
    line_->expect(preposition);
    channel.peer = static_cast<Rank>(line_->number<std::int32_t>("a rank"));
    line_->expect("credits");
    channel.credits = line_->number<std::uint8_t>("the number of credits");
    line_->expect("width");
    channel.width = line_->number<std::uint8_t>("the width");
    line_->expect_end();
    channels.push_back(channel);
  }

  void read_lane() {
    finish_lane();
    const auto place = line_->number<std::uint8_t>("the lane's number");
    if (place != program().lanes.size())
      line_->refuse("lane {} where lane {} is expected", place, program().lanes.size());
    const std::string_view name = line_->word("the lane's name");
    program().lanes.push_back({name == kUnnamed ? "" : std::string(name), {}});
    line_->expect("steps");
    promised_ = line_->number<std::uint32_t>("the number of steps");
    line_->expect_end();
  }

  // Holds the lane to the number of steps that it announced.
  void finish_lane() {
    if (plan_.programs.empty() || program().lanes.empty()) return;
    const std::size_t there = program().lanes.back().steps.size();
    if (there != promised_)
      line_->refuse("lane {} of rank {} ends after {} steps of {}", program().lanes.size() - 1,
                    plan_.programs.size() - 1, there, promised_);
  }

  void read_step() {
    std::vector<Step>& steps = program().lanes.back().steps;
    const std::string_view numbered = line_->word("the step's number");
    if (!numbered.ends_with(':')) line_->refuse("'{}' where '{}:' is expected, the next step", numbered, steps.size());
    const auto place = line_->to_number<std::uint32_t>(numbered.substr(0, numbered.size() - 1), "the step's number");
    if (place != steps.size()) line_->refuse("step {} where step {} is expected", place, steps.size());
    if (steps.size() >= promised_) line_->refuse("step {} of a lane of {} steps", place, promised_);
    Step step;
    if (!line_->accept("nothing")) read_parts(step);
    line_->expect_end();
    steps.push_back(step);
  }

  void read_parts(Step& step) {
    if (line_->done()) line_->refuse("an empty step: 'nothing' says so");
    if (line_->accept("after")) read_after(step);
    if (line_->accept("take")) step.takes = read_channels(program().takes, step.take, '<', kMaxTakes);
    if (line_->accept("with")) read_place(step.with_space, step.with_block);
    step.combine = line_->accept("combine");
    if (line_->accept("into")) read_place(step.into_space, step.into_block);
    if (line_->accept("give")) step.gives = read_channels(program().gives, step.give, '>', kMaxGives);
  }

  // "1(rail):3" or "1:3".
  void read_after(Step& step) {
    std::string_view lane = line_->word("a lane's number"), steps;
    if (const std::size_t colon = lane.find(':'); colon != std::string_view::npos) {
      steps = lane.substr(colon);
      lane = lane.substr(0, colon);
    } else {
      if (!line_->done() && line_->peek().front() == '(') line_->word("the lane's name");
      steps = line_->word("':' and a number of steps");
    }
    step.after_lane = line_->to_number<std::uint8_t>(lane, "a lane's number");
    if (steps.front() != ':') line_->refuse("'{}' where ':' and a number of steps is expected", steps);
    step.after_steps = line_->to_number<std::uint32_t>(steps.substr(1), "a number of steps");
    if (step.after_steps == 0) line_->refuse("a wait for 0 steps is no wait");
  }

  std::uint8_t read_channels(const std::vector<Channel>& channels, std::uint16_t& first, char direction, int most) {
    first = line_->number<std::uint16_t>("a channel's number");
    int count = 1;
    for (int expected = first;; ++expected, ++count) {
      if (!line_->done() && line_->peek().front() == '(') {
        const std::string found(line_->word("the channel"));
        const std::string known = "(" + note(channels, expected, direction) + ")";
        if (found != known) line_->refuse("channel {} is {}, not {}", expected, known, found);
      }
      if (line_->done() || line_->peek().front() < '0' || line_->peek().front() > '9') break;
      const auto following = line_->number<std::uint16_t>("a channel's number");
      if (following != expected + 1)
        line_->refuse("channel {} after channel {}: they must follow each other", following, expected);
      if (count == most) line_->refuse("more than {} channels in one step", most);
    }
    return static_cast<std::uint8_t>(count);
  }

  void read_place(Space& space, std::uint32_t& block) {
    const std::string_view place = line_->word("a place");
    const std::size_t colon = place.find(':');
    if (colon == std::string_view::npos) line_->refuse("'{}' is not a place: space, ':' and block, as in:3", place);
    space = static_cast<Space>(line_->one_of(kSpaces, place.substr(0, colon), "a space"));
    if (space == Space::none) line_->refuse("'{}': the space none holds no block", place);
    block = line_->to_number<std::uint32_t>(place.substr(colon + 1), "a block");
  }

  Program& program() { return plan_.programs.back(); }

  std::string_view rest_;
  int number_ = 0;
  std::optional<Line> line_;
  Plan plan_;
  std::size_t promised_ = 0;  // steps that the open lane announced
};

}  // namespace

std::string_view name_of(Label label) {
  const auto number = static_cast<std::size_t>(label);
  return number < kLabels.size() ? kLabels[number] : "?";
}

std::string to_text(const Program& program, const Step& step) {
  std::string text;
  if (step.after_steps != 0) {
    const bool known = step.after_lane < program.lanes.size();
    text += fmt::format(" after {}({}):{}", step.after_lane,
                        known ? name_or_dash(program.lanes[step.after_lane].name) : "?", step.after_steps);
  }
  append_channels(text, "take", program.takes, step.take, step.takes, '<');
  if (step.with())
    text += fmt::format(" with {}:{}", kSpaces[static_cast<std::size_t>(step.with_space)], step.with_block);
  if (step.combine) text += " combine";
  if (step.into())
    text += fmt::format(" into {}:{}", kSpaces[static_cast<std::size_t>(step.into_space)], step.into_block);
  append_channels(text, "give", program.gives, step.give, step.gives, '>');
  return text.empty() ? "nothing" : text.substr(1);
}

std::string to_text(const Program& program, Rank rank) {
  std::string text = fmt::format("rank {} tmp {}\n", index(rank), program.tmp_blocks);
  append_ends(text, "take", program.takes, "from");
  append_ends(text, "give", program.gives, "to");
  for (std::size_t l = 0; l < program.lanes.size(); ++l) {
    const Lane& lane = program.lanes[l];
    text += fmt::format("lane {} {} steps {}\n", l, name_or_dash(lane.name), lane.steps.size());
    for (std::size_t i = 0; i < lane.steps.size(); ++i)
      text += fmt::format("  {}: {}\n", i, to_text(program, lane.steps[i]));
  }
  return text;
}

std::string to_text(const Plan& plan) {
  std::string text = fmt::format("plan {} {} ranks {} parts {}\n", name_or_dash(plan.schedule),
                                 name_of(plan.collective.kind), plan.collective.ranks, plan.parts);
  for (std::size_t r = 0; r < plan.programs.size(); ++r) text += to_text(plan.programs[r], static_cast<Rank>(r));
  return text + "end\n";
}

Plan parse_plan(std::string_view text) { return Parser(text).plan(); }

}  // namespace hoccl
