// Plan → SVG. A small world that only counts messages fires every lane that can fire, tick by tick; a tick is a column,
// a lane a row, a step a box, a message a line from box to box, an `after` a dashed one. No clock: the picture shows
// what waits for what, not how long anything takes. A plan that gets stuck is drawn as far as it comes.
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
constexpr double kRowHeight = 22, kBoxHeight = 16, kRankGap = 10, kMargin = 16;
constexpr double kNodeHead = 16, kNodeGap = 12, kLegendY = 78, kLegendRow = 18;
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
constexpr std::array<std::string_view, 2> kBands = {"#edf3f9", "#f8f1e6"};  // of nodes, in turn
// Attributes of lines. The weights of messages differ from all others, so that pictures can be counted.
constexpr std::string_view kNear = "stroke-width=\"0.9\" opacity=\"0.55\"";
constexpr std::string_view kFar = "stroke-width=\"2.2\" opacity=\"0.7\"";
constexpr std::string_view kWait = "stroke=\"#444444\" stroke-width=\"0.7\" stroke-dasharray=\"3 2\"";

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

std::string counted(std::int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

// One entry of the legend: a box in two colours, or a line with these attributes.
struct Entry {
  std::array<std::string_view, 2> box;
  std::string line;
  std::string words;
};

class Drawing {
 public:
  Drawing(const Plan& plan, std::span<const int> node_of)
      : plan_(plan), firing_(simulate(plan)), ranks_(std::min(static_cast<int>(plan.programs.size()), kDrawnRanks)) {
    if (node_of.size() == plan.programs.size()) node_of_ = node_of;
    for (int r = 0; r < ranks_; ++r) order_.push_back(r);
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int z) { return node(a) < node(z); });
    const double ticks = std::max(1, firing_.ticks);
    const double roomy = box_text_width() + 16;
    column_ = std::clamp(kWidest / ticks, 2.0, roomy);
    numbers_ = column_ >= roomy;
    left_ = kMargin + std::max(58 + kLetter * static_cast<double>(longest_lane_name()) + 12, 110.0);
    width_ = std::max(left_ + column_ * ticks + (firing_.stuck > 0 ? 80 : 0), head_width()) + kMargin;
    place_legend();
    place_rows();
  }

  std::int64_t stuck() const { return firing_.stuck; }

  std::string svg() {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" "
        "fill=\"white\"/>\n",
        width_, height_);
    head();
    bands();
    axis();
    tracks();
    messages();
    waits();
    boxes();
    return std::move(out_) + "</svg>\n";
  }

 private:
  int node(int rank) const { return node_of_.empty() ? 0 : node_of_[static_cast<std::size_t>(rank)]; }
  bool crosses(int rank, int peer) const {
    const bool known = peer >= 0 && peer < static_cast<int>(plan_.programs.size());
    return known && node(rank) != node(peer);
  }

  std::size_t longest_lane_name() const {
    std::size_t longest = 0;
    for (int r = 0; r < ranks_; ++r)
      for (const Lane& lane : program(r).lanes) longest = std::max(longest, lane.name.size());
    return longest;
  }

  // Ranks node by node; a node's head row holds its name.
  void place_rows() {
    rows_.resize(order_.size());
    double y = axis_y_ + 14;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const int r = order_[i];
      if (!node_of_.empty() && (i == 0 || node(order_[i - 1]) != node(r))) {
        if (!heads_.empty()) y += kNodeGap;
        heads_.push_back({node(r), y, y});
        y += kNodeHead;
      }
      for (std::size_t l = 0; l < program(r).lanes.size(); ++l) {
        rows_[static_cast<std::size_t>(r)].push_back(y);
        y += kRowHeight;
      }
      if (!heads_.empty()) heads_.back().bottom = y;
      y += kRankGap;
    }
    height_ = y + kMargin;
  }

  const Program& program(int rank) const { return plan_.programs[static_cast<std::size_t>(rank)]; }
  double row(int rank, int lane) const { return rows_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(lane)]; }
  const std::vector<int>& ticks_of(int rank, int lane) const {
    return firing_.tick[static_cast<std::size_t>(rank)][static_cast<std::size_t>(lane)];
  }
  double column_of(const Where& w) const {
    return left_ + column_ * ticks_of(w.rank, w.lane)[static_cast<std::size_t>(w.step)];
  }
  double box_width() const { return numbers_ ? column_ - 12 : column_ * 0.7; }

  // "+o12": the block that a step is about, with its space; + when it combines. A space that holds only the rank's own
  // share is numbered as the whole buffer, so that a block keeps its number on its way.
  std::string box_text(int rank, const Step& step) const {
    const Place place = step.into() ? step.into() : step.with();
    const auto r = static_cast<Rank>(rank);
    std::string block;
    if (place.space == Space::in) block = fmt::format("i{}", shared_in(plan_.collective, plan_.parts, r, place.block));
    if (place.space == Space::out)
      block = fmt::format("o{}", shared_out(plan_.collective, plan_.parts, r, place.block));
    if (place.space == Space::tmp) block = fmt::format("t{}", place.block);
    return (step.combine ? "+" : "") + block;
  }
  double box_text_width() const {
    std::size_t longest = 2;
    for (int r = 0; r < ranks_; ++r)
      for (const Lane& lane : program(r).lanes)
        for (const Step& step : lane.steps) longest = std::max(longest, box_text(r, step).size());
    return kLetter * static_cast<double>(longest) + 4;
  }

  std::string title() const {
    return fmt::format(
        "{} {}: {}, {}, {}{}", plan_.schedule, name_of(plan_.collective.kind), counted(plan_.collective.ranks, "rank"),
        counted(plan_.parts, "part"), counted(firing_.ticks, "tick"),
        ranks_ < static_cast<int>(plan_.programs.size()) ? fmt::format(" (ranks 0 to {} drawn)", ranks_ - 1) : "");
  }
  static constexpr std::array<std::string_view, 2> kExplained = {
      "Box: a step, with its block (i input, o output, t scratch); + combines; dark frame: writes the output.",
      "Column: one tick, in which every lane that can fire does; no clock. Line: a message, from its giver to its "
      "taker."};
  double head_width() const {
    const double title_width = 10.5 * static_cast<double>(title().size());  // bold, at 15 pixels
    return kMargin + std::max(title_width, kLetter * static_cast<double>(kExplained[1].size()));
  }

  void text(double x, double y, std::string_view words, std::string_view more = {}) {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, escaped(words));
  }

  template <class What>
  bool any_step(What what) const {
    for (const Program& p : plan_.programs)
      for (const Lane& lane : p.lanes)
        if (std::any_of(lane.steps.begin(), lane.steps.end(), what)) return true;
    return false;
  }

  bool any_crossing() const {
    for (std::size_t r = 0; r < plan_.programs.size(); ++r)
      for (const Channel& c : plan_.programs[r].gives)
        if (crosses(static_cast<int>(r), index(c.peer))) return true;
    return false;
  }

  std::vector<Entry> entries() const {
    std::vector<Entry> all;
    for (std::size_t label = 0; label < kColours.size(); ++label)
      if (uses(static_cast<Label>(label)))
        all.push_back({kColours[label], {}, std::string(name_of(static_cast<Label>(label)))});
    if (any_step([](const Step& s) { return s.takes == 0 && s.gives == 0; })) all.push_back({kLocal, {}, "no message"});
    if (any_crossing()) all.push_back({{}, fmt::format("stroke=\"#444444\" {}", kFar), "message between nodes"});
    if (any_step([](const Step& s) { return s.after_steps != 0; }))
      all.push_back({{}, std::string(kWait), "waits for that step of its rank (after)"});
    return all;
  }

  static double width_of(const Entry& e) { return 23 + kLetter * static_cast<double>(e.words.size()) + 18; }

  // As many rows as the width asks for; the axis comes below.
  void place_legend() {
    double x = kMargin, y = kLegendY;
    for (const Entry& e : entries()) {
      if (x > kMargin && x + width_of(e) > width_) x = kMargin, y += kLegendRow;
      legend_.push_back({e, x, y});
      x += width_of(e);
    }
    if (firing_.stuck > 0) stuck_y_ = y += kLegendRow;
    axis_y_ = y + kLegendRow + 12;
  }

  void head() {
    text(kMargin, 26, title(), "font-size=\"15\" font-weight=\"bold\"");
    for (std::size_t i = 0; i < kExplained.size(); ++i)
      text(kMargin, 44 + 14 * static_cast<double>(i), kExplained[i], "fill=\"#444444\"");
    for (const Placed& p : legend_) {
      if (p.entry.line.empty())
        out_ += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"18\" height=\"12\" rx=\"2\" fill=\"{}\" stroke=\"{}\" "
            "stroke-width=\"1.5\"/>\n",
            p.x, p.y - 10, p.entry.box[1], p.entry.box[0]);
      else
        out_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", p.x, p.y - 4,
                            p.x + 18, p.y - 4, p.entry.line);
      text(p.x + 23, p.y, p.entry.words);
    }
    if (firing_.stuck > 0)
      text(kMargin, stuck_y_, fmt::format("STUCK: {} can never fire", counted(firing_.stuck, "step")),
           "fill=\"#d00000\" font-weight=\"bold\"");
  }

  bool uses(Label label) const {
    const auto has = [&](const std::vector<Channel>& channels) {
      return std::any_of(channels.begin(), channels.end(), [&](const Channel& c) { return c.label == label; });
    };
    return std::any_of(plan_.programs.begin(), plan_.programs.end(),
                       [&](const Program& p) { return has(p.gives) || has(p.takes); });
  }

  void bands() {
    for (const NodeHead& h : heads_) {
      out_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"4\" fill=\"{}\"/>\n",
                          kMargin - 6, h.top - 3, width_ - 2 * kMargin + 12, h.bottom - h.top + 5,
                          kBands[static_cast<std::size_t>(h.node) % kBands.size()]);
      text(kMargin, h.top + 9, fmt::format("node {}", h.node), "font-weight=\"bold\" fill=\"#555555\"");
    }
  }

  // Ticks are numbered as closely as their numbers fit.
  void axis() {
    text(left_ - 10, axis_y_, "firing order, tick", "text-anchor=\"end\" fill=\"#444444\"");
    const double room = kLetter * static_cast<double>(std::to_string(firing_.ticks).size()) + 8;
    int every = 1;
    while (column_ * every < room) every = every % 5 == 0 ? every * 2 : every * 5;
    for (int tick = 0; tick < firing_.ticks; tick += every)
      text(left_ + column_ * tick + box_width() / 2, axis_y_, std::to_string(tick),
           "text-anchor=\"middle\" fill=\"#444444\"");
  }

  void tracks() {
    for (const int r : order_) {
      const std::vector<Lane>& lanes = program(r).lanes;
      if (lanes.empty()) continue;
      out_ += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" opacity=\"0.7\"/>\n", kMargin,
          row(r, 0) - 3, width_ - 2 * kMargin, kRowHeight * static_cast<double>(lanes.size()),
          node_of_.empty() ? "#f3f3f3" : "white");
      text(kMargin + 5, row(r, 0) + 12, fmt::format("rank {}", r), "font-weight=\"bold\"");
      for (int l = 0; l < static_cast<int>(lanes.size()); ++l) {
        text(kMargin + 58, row(r, l) + 12, lanes[static_cast<std::size_t>(l)].name, "fill=\"#444444\"");
        out_ += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#dddddd\"/>\n", left_,
                            row(r, l) + kBoxHeight / 2, width_ - kMargin);
      }
    }
  }

  // From the right side of one box to the left side of another.
  void line(const Where& from, const Where& to, std::string_view attributes) {
    out_ += fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" {}/>\n", column_of(from) + box_width(),
                        row(from.rank, from.lane) + kBoxHeight / 2, column_of(to),
                        row(to.rank, to.lane) + kBoxHeight / 2, attributes);
  }

  void messages() {
    for (const Message& m : firing_.messages)
      if (m.from.rank < ranks_ && m.to.rank < ranks_)
        line(m.from, m.to,
             fmt::format("stroke=\"{}\" {}", kColours[static_cast<std::size_t>(m.label) % kColours.size()][0],
                         crosses(m.from.rank, m.to.rank) ? kFar : kNear));
  }

  void waits() {
    for (const int r : order_)
      for (int l = 0; l < static_cast<int>(program(r).lanes.size()); ++l)
        for (int s = 0; s < static_cast<int>(ticks_of(r, l).size()); ++s) {
          const Step& step = program(r).lanes[static_cast<std::size_t>(l)].steps[static_cast<std::size_t>(s)];
          if (step.after_steps != 0)  // a step that fired waited for steps that fired
            line({r, step.after_lane, static_cast<int>(step.after_steps) - 1}, {r, l, s}, kWait);
        }
  }

  void boxes() {
    for (const int r : order_)
      for (int l = 0; l < static_cast<int>(program(r).lanes.size()); ++l) {
        const Lane& lane = program(r).lanes[static_cast<std::size_t>(l)];
        const std::size_t fired = ticks_of(r, l).size();
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
    if (numbers_) text(x + w / 2, y + 12, box_text(where.rank, step), "text-anchor=\"middle\"");
    out_ += "</g>\n";
  }

  struct NodeHead {
    int node;
    double top, bottom;
  };
  struct Placed {
    Entry entry;
    double x, y;
  };

  const Plan& plan_;
  Firing firing_;
  int ranks_;
  std::span<const int> node_of_;           // by rank; empty when unknown
  std::vector<int> order_;                 // drawn ranks from top to bottom
  std::vector<std::vector<double>> rows_;  // by rank, lane
  std::vector<NodeHead> heads_;
  std::vector<Placed> legend_;
  bool numbers_ = true;  // there is room for them in the boxes
  double left_ = 0, column_ = 0, width_ = 0, height_ = 0, axis_y_ = 0, stuck_y_ = 0;
  std::string out_;
};

}  // namespace

std::string to_svg(const Plan& plan, std::span<const int> node_of, std::int64_t* stuck) {
  Drawing drawing(plan, node_of);
  if (stuck != nullptr) *stuck = drawing.stuck();
  return drawing.svg();
}

}  // namespace hoccl
