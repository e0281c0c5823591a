// Plan → SVG. A small world that only counts messages fires every lane that can fire, tick by tick; a tick is a column,
// a lane a row, a step a box, a message a line from box to box. No clock: the picture shows what waits for what, not
// how long anything takes. A plan that gets stuck is drawn as far as it comes.
#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <tuple>

#include "src/base/error.hpp"
#include "src/plan/interpret.hpp"
#include "src/plan/plan.hpp"

namespace hoccl {
namespace {

constexpr int kDrawnRanks = 64;    // more ranks than this make no picture; the first ones are drawn
constexpr double kWidest = 12000;  // of the tracks, in pixels; columns get narrower beyond
constexpr double kRowHeight = 22, kBoxHeight = 16, kRankGap = 10, kHead = 96, kMargin = 16;
constexpr double kLetter = 6.2;  // width of a letter at 10 pixels, generously

// By label, in the order of Label: line, box.
constexpr std::array<std::array<std::string_view, 2>, 6> kColours = {{
    {"#1f6fb2", "#cfe3f5"},
    {"#b5651d", "#f7e0c8"},
    {"#8a2f8f", "#eed3f0"},
    {"#c0262d", "#f8cfd1"},
    {"#2e7d32", "#d0ebd2"},
    {"#00707a", "#c9eaec"},
}};
constexpr std::array<std::string_view, 2> kLocal = {"#555555", "#e6e6e6"};

struct Where {
  int rank = 0, lane = 0, step = 0;
};

struct Message {
  Where from, to;
  Label label;
};

// When each step fires, in ticks, and which message goes from where to where.
struct Firing {
  std::vector<std::vector<std::vector<int>>> tick;  // by rank, lane, step; shorter where a lane got stuck
  std::vector<Message> messages;
  int ticks = 0;
  std::int64_t stuck = 0;  // steps that never fired
};

// What a step does becomes visible to others one tick later, so the order in which lanes are tried does not show.
class CountingWorld {
 public:
  struct Value {};

  CountingWorld(const Plan& plan, Firing& firing) : plan_(plan), firing_(firing) {
    for (std::size_t r = 0; r < plan.programs.size(); ++r) {
      const Program& program = plan.programs[r];
      auto& ends = ends_.emplace_back();
      for (const Channel& c : program.takes) ends.takes.push_back(&pipes_[{index(c.peer), int(r), c.label}]);
      for (const Channel& c : program.gives) {
        Pipe& pipe = pipes_[{int(r), index(c.peer), c.label}];
        pipe.credits = c.credits;
        ends.gives.push_back(&pipe);
      }
      finished_.emplace_back(program.lanes.size(), 0u);
    }
  }

  // One tick; false when nothing could fire.
  bool tick() {
    bool moved = false;
    for (here_.rank = 0; here_.rank < static_cast<int>(plan_.programs.size()); ++here_.rank) {
      const std::vector<Lane>& lanes = plan_.programs[static_cast<std::size_t>(here_.rank)].lanes;
      for (here_.lane = 0; here_.lane < static_cast<int>(lanes.size()); ++here_.lane) {
        const std::vector<Step>& steps = lanes[static_cast<std::size_t>(here_.lane)].steps;
        std::vector<int>& fired = ticks_of_lane();
        here_.step = static_cast<int>(fired.size());
        if (fired.size() == steps.size() || fire(steps[fired.size()], *this) != Fired::moved) continue;
        fired.push_back(firing_.ticks);
        moved = true;
      }
    }
    if (moved) settle();
    return moved;
  }

  bool finished(int lane, std::uint32_t steps) const noexcept {
    const auto& lanes = finished_[static_cast<std::size_t>(here_.rank)];
    return static_cast<std::size_t>(lane) < lanes.size() && lanes[static_cast<std::size_t>(lane)] >= steps;
  }
  bool can_take(int channel) const noexcept {
    const auto& takes = ends().takes;
    return static_cast<std::size_t>(channel) < takes.size() && !takes[static_cast<std::size_t>(channel)]->there.empty();
  }
  bool can_give(int channel, const Step&) const noexcept {
    const auto& gives = ends().gives;
    if (static_cast<std::size_t>(channel) >= gives.size()) return false;
    const Pipe& pipe = *gives[static_cast<std::size_t>(channel)];
    return pipe.in_flight < pipe.credits;
  }
  void begin(const Step&) noexcept {}
  Value take(int channel) {
    Pipe& pipe = *ends().takes[static_cast<std::size_t>(channel)];
    const Program& program = plan_.programs[static_cast<std::size_t>(here_.rank)];
    firing_.messages.push_back({pipe.there.front(), here_, program.takes[static_cast<std::size_t>(channel)].label});
    pipe.there.pop_front();
    ++pipe.released;
    return {};
  }
  Value load(Place) noexcept { return {}; }
  Value combine(const Value*, int) noexcept { return {}; }
  void store(Place, Value) noexcept {}
  void give(int channel, Value) {
    Pipe& pipe = *ends().gives[static_cast<std::size_t>(channel)];
    pipe.coming.push_back(here_);
    ++pipe.in_flight;
  }
  bool end(const Step&) noexcept { return true; }

 private:
  struct Pipe {
    std::deque<Where> there;    // messages to be taken, by the step that gave them
    std::vector<Where> coming;  // given in this tick
    int in_flight = 0, released = 0, credits = 0;
  };
  struct Ends {
    std::vector<Pipe*> takes, gives;
  };

  const Ends& ends() const noexcept { return ends_[static_cast<std::size_t>(here_.rank)]; }
  std::vector<int>& ticks_of_lane() {
    return firing_.tick[static_cast<std::size_t>(here_.rank)][static_cast<std::size_t>(here_.lane)];
  }
  void settle() {
    ++firing_.ticks;
    for (auto& [key, pipe] : pipes_) {
      pipe.there.insert(pipe.there.end(), pipe.coming.begin(), pipe.coming.end());
      pipe.coming.clear();
      pipe.in_flight -= pipe.released;
      pipe.released = 0;
    }
    for (std::size_t r = 0; r < finished_.size(); ++r)
      for (std::size_t l = 0; l < finished_[r].size(); ++l)
        finished_[r][l] = static_cast<std::uint32_t>(firing_.tick[r][l].size());
  }

  const Plan& plan_;
  Firing& firing_;
  std::map<std::tuple<int, int, Label>, Pipe> pipes_;  // by giver, taker, label; nodes stay where they are
  std::vector<Ends> ends_;
  std::vector<std::vector<std::uint32_t>> finished_;  // as of the last tick
  Where here_;
};

Firing simulate(const Plan& plan) {
  Firing firing;
  for (const Program& program : plan.programs) firing.tick.emplace_back(program.lanes.size());
  CountingWorld world(plan, firing);
  while (world.tick()) continue;
  for (std::size_t r = 0; r < plan.programs.size(); ++r)
    for (std::size_t l = 0; l < plan.programs[r].lanes.size(); ++l)
      firing.stuck += static_cast<std::int64_t>(plan.programs[r].lanes[l].steps.size() - firing.tick[r][l].size());
  return firing;
}

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else
      safe += c;
  }
  return safe;
}

class Drawing {
 public:
  explicit Drawing(const Plan& plan)
      : plan_(plan), firing_(simulate(plan)), ranks_(std::min(static_cast<int>(plan.programs.size()), kDrawnRanks)) {
    place_rows();
    const double ticks = std::max(1, firing_.ticks);
    const double roomy = box_text_width() + 16;
    column_ = std::clamp(kWidest / ticks, 2.0, roomy);
    numbers_ = column_ >= roomy;
    width_ = std::max(left_ + column_ * ticks + (firing_.stuck > 0 ? 60 : 0), head_width()) + kMargin;
  }

  std::string svg() {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" "
        "fill=\"white\"/>\n",
        width_, height_);
    head();
    tracks();
    messages();
    boxes();
    return std::move(out_) + "</svg>\n";
  }

 private:
  void place_rows() {
    double y = kHead;
    std::size_t longest = 0;
    for (int r = 0; r < ranks_; ++r) {
      auto& rows = rows_.emplace_back();
      for (const Lane& lane : program(r).lanes) {
        rows.push_back(y);
        y += kRowHeight;
        longest = std::max(longest, lane.name.size());
      }
      y += kRankGap;
    }
    height_ = y + kMargin;
    left_ = kMargin + 58 + kLetter * static_cast<double>(longest) + 12;
  }

  const Program& program(int rank) const { return plan_.programs[static_cast<std::size_t>(rank)]; }
  double row(int rank, int lane) const { return rows_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(lane)]; }
  double column_of(const Where& w) const {
    return left_ + column_ * firing_.tick[static_cast<std::size_t>(w.rank)][static_cast<std::size_t>(w.lane)]
                                         [static_cast<std::size_t>(w.step)];
  }
  double box_width() const { return numbers_ ? column_ - 12 : column_ * 0.7; }

  // "+12": the block that a step is about, with + when it combines.
  static std::string box_text(const Step& step) {
    const Place place = step.into() ? step.into() : step.with();
    return (step.combine ? "+" : "") + (place ? std::to_string(place.block) : std::string());
  }
  double box_text_width() const {
    std::size_t longest = 2;
    for (int r = 0; r < ranks_; ++r)
      for (const Lane& lane : program(r).lanes)
        for (const Step& step : lane.steps) longest = std::max(longest, box_text(step).size());
    return kLetter * static_cast<double>(longest) + 4;
  }

  std::string title() const {
    return fmt::format(
        "{} {}: {} ranks, {} {}, {} ticks{}", plan_.schedule, name_of(plan_.collective.kind), plan_.collective.ranks,
        plan_.parts, plan_.parts == 1 ? "part" : "parts", firing_.ticks,
        ranks_ < static_cast<int>(plan_.programs.size()) ? fmt::format(" (ranks 0 to {} drawn)", ranks_ - 1) : "");
  }
  static constexpr std::string_view kExplained =
      "Box: a step, with the number of its block; + combines; dark frame: writes out. Column: one tick, in which every "
      "lane "
      "that can fire does. Line: a message.";
  double head_width() const { return kMargin + kLetter * static_cast<double>(kExplained.size()); }

  void text(double x, double y, std::string_view words, std::string_view more = {}) {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, escaped(words));
  }

  void head() {
    text(kMargin, 26, title(), "font-size=\"15\" font-weight=\"bold\"");
    text(kMargin, 46, kExplained, "fill=\"#444444\"");
    double x = kMargin;
    for (std::size_t label = 0; label < kColours.size(); ++label)
      if (uses(static_cast<Label>(label))) x = legend(x, kColours[label], name_of(static_cast<Label>(label)));
    x = legend(x, kLocal, "no message");
    if (firing_.stuck > 0)
      text(x, 70, fmt::format("STUCK: {} steps can never fire", firing_.stuck),
           "fill=\"#d00000\" font-weight=\"bold\"");
  }

  double legend(double x, const std::array<std::string_view, 2>& colours, std::string_view words) {
    out_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"60\" width=\"18\" height=\"12\" rx=\"2\" fill=\"{}\" stroke=\"{}\" "
        "stroke-width=\"1.5\"/>\n",
        x, colours[1], colours[0]);
    text(x + 23, 70, words);
    return x + 23 + kLetter * static_cast<double>(words.size()) + 18;
  }

  bool uses(Label label) const {
    const auto has = [&](const std::vector<Channel>& channels) {
      return std::any_of(channels.begin(), channels.end(), [&](const Channel& c) { return c.label == label; });
    };
    return std::any_of(plan_.programs.begin(), plan_.programs.end(),
                       [&](const Program& p) { return has(p.gives) || has(p.takes); });
  }

  void tracks() {
    for (int r = 0; r < ranks_; ++r) {
      const std::vector<Lane>& lanes = program(r).lanes;
      if (lanes.empty()) continue;
      out_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#f6f6f6\"/>\n",
                          kMargin, row(r, 0) - 3, width_ - 2 * kMargin, kRowHeight * static_cast<double>(lanes.size()));
      text(kMargin + 5, row(r, 0) + 12, fmt::format("rank {}", r), "font-weight=\"bold\"");
      for (int l = 0; l < static_cast<int>(lanes.size()); ++l) {
        text(kMargin + 58, row(r, l) + 12, lanes[static_cast<std::size_t>(l)].name, "fill=\"#444444\"");
        out_ += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#dddddd\"/>\n", left_,
                            row(r, l) + kBoxHeight / 2, width_ - kMargin);
      }
    }
  }

  void messages() {
    for (const Message& m : firing_.messages) {
      if (m.from.rank >= ranks_ || m.to.rank >= ranks_) continue;
      out_ += fmt::format(
          "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"{}\" stroke-width=\"0.9\" opacity=\"0.55\"/>\n",
          column_of(m.from) + box_width(), row(m.from.rank, m.from.lane) + kBoxHeight / 2, column_of(m.to),
          row(m.to.rank, m.to.lane) + kBoxHeight / 2, kColours[static_cast<std::size_t>(m.label) % kColours.size()][0]);
    }
  }

  void boxes() {
    for (int r = 0; r < ranks_; ++r)
      for (int l = 0; l < static_cast<int>(program(r).lanes.size()); ++l) {
        const Lane& lane = program(r).lanes[static_cast<std::size_t>(l)];
        const std::size_t fired = firing_.tick[static_cast<std::size_t>(r)][static_cast<std::size_t>(l)].size();
        for (std::size_t s = 0; s < fired; ++s) box({r, l, static_cast<int>(s)}, lane.steps[s]);
        if (fired < lane.steps.size())
          text(left_ + column_ * firing_.ticks + 4, row(r, l) + 12, fmt::format("stuck at {}", fired),
               "fill=\"#d00000\"");
      }
  }

  // The colour of what it gives; otherwise of what it takes.
  const std::array<std::string_view, 2>& colours_of(const Program& p, const Step& step) const {
    const Channel* channel = step.gives > 0 ? &p.gives[step.give] : step.takes > 0 ? &p.takes[step.take] : nullptr;
    return channel == nullptr ? kLocal : kColours[static_cast<std::size_t>(channel->label) % kColours.size()];
  }

  void box(const Where& where, const Step& step) {
    const double x = column_of(where), y = row(where.rank, where.lane), w = box_width();
    const auto& colours = colours_of(program(where.rank), step);
    const bool result = step.into_space == Space::out;
    out_ += fmt::format(
        "<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\" fill=\"{}\" "
        "stroke=\"{}\" stroke-width=\"{}\"/>",
        escaped(fmt::format("rank {} lane {} step {}: {}", where.rank, where.lane, where.step,
                            to_text(program(where.rank), step))),
        x, y, w, kBoxHeight, colours[1], result ? "#222222" : colours[0], result ? 1.4 : 0.8);
    if (numbers_) text(x + w / 2, y + 12, box_text(step), "text-anchor=\"middle\"");
    out_ += "</g>\n";
  }

  const Plan& plan_;
  Firing firing_;
  int ranks_;
  std::vector<std::vector<double>> rows_;
  bool numbers_ = true;  // there is room for them in the boxes
  double left_ = 0, column_ = 0, width_ = 0, height_ = 0;
  std::string out_;
};

}  // namespace

std::string to_svg(const Plan& plan) { return Drawing(plan).svg(); }

}  // namespace hoccl
