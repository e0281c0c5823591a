// Plans as text: what is printed is read back equal, and what is wrong is named with its line.
// Plans as pictures: every step and message of a small plan is in the picture, and a stuck plan says so.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/plan/builder.hpp"
#include "src/plan/plan.hpp"
#include "src/schedules/schedule.hpp"

using namespace hoccl;

namespace {

// Two ranks exchange a block and add it up: one lane that sends, one that waits for it and receives.
Plan two_ranks() {
  Plan plan{"swap", {Kind::all_reduce, 2}, 1, {}};
  for (int r = 0; r < 2; ++r) {
    ProgramBuilder b;
    const Rank other{1 - r};
    const Take in = b.incoming({other, Label::ring, 2, 4});
    const Give out = b.outgoing({other, Label::ring, 2, 4});
    const int send = b.lane("send"), receive = b.lane("receive");
    b.scratch(3);
    const std::uint32_t sent = b.add(send, step::send({Space::in, 0}, out));
    b.add(receive, step::after(send, sent, step::reduce(in, {Space::in, 1}, {Space::out, 7})));
    plan.programs.push_back(b.finish());
  }
  return plan;
}

constexpr const char* kTwoRanks =
    "plan swap all_reduce ranks 2 parts 1\n"
    "rank 0 tmp 3\n"
    "take 0 ring from 1 credits 2 width 4\n"
    "give 0 ring to 1 credits 2 width 4\n"
    "lane 0 send steps 1\n"
    "  0: with in:0 give 0(ring>1)\n"
    "lane 1 receive steps 1\n"
    "  0: after 0(send):1 take 0(ring<1) with in:1 combine into out:7\n"
    "rank 1 tmp 3\n"
    "take 0 ring from 0 credits 2 width 4\n"
    "give 0 ring to 0 credits 2 width 4\n"
    "lane 0 send steps 1\n"
    "  0: with in:0 give 0(ring>0)\n"
    "lane 1 receive steps 1\n"
    "  0: after 0(send):1 take 0(ring<0) with in:1 combine into out:7\n"
    "end\n";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

std::string refusal(const std::string& text) {
  try {
    parse_plan(text);
  } catch (const Error& error) {
    CHECK(error.code() == Code::invalid_argument);
    return error.what();
  }
  return "accepted";
}

int occurrences(const std::string& text, const std::string& what) {
  int n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("a plan is printed one line a step") { CHECK(to_text(two_ranks()) == kTwoRanks); }

TEST_CASE("one rank and one step are printed alone") {
  const Plan plan = two_ranks();
  const std::string whole = kTwoRanks;
  CHECK(to_text(plan.programs[1], Rank{1}) ==
        whole.substr(whole.find("rank 1"), whole.find("end\n") - whole.find("rank 1")));
  CHECK(to_text(plan.programs[0], plan.programs[0].lanes[1].steps[0]) ==
        "after 0(send):1 take 0(ring<1) with in:1 combine into out:7");
  CHECK(to_text(plan.programs[0], Step{}) == "nothing");
}

TEST_CASE("a printed plan is read back equal") {
  CHECK(parse_plan(to_text(two_ranks())) == two_ranks());
  for (const Schedule& schedule : all_schedules())
    for (const Kind kind : kKinds)
      for (const auto& [nodes, per_node] : {std::pair{1, 1}, {1, 3}, {2, 2}, {2, 4}, {3, 3}, {4, 1}})
        for (const int parts : {1, 2, 3}) {
          const Groups groups = Groups::even(nodes, per_node);
          const Plan plan = whole_plan(schedule, groups, {kind, groups.ranks()}, parts);
          INFO(to_text(plan));
          CHECK((parse_plan(to_text(plan)) == plan));
        }
}

TEST_CASE("steps of every form are read back equal") {
  Plan plan = two_ranks();
  Program& program = plan.programs[0];
  for (int i = 1; i < kMaxTakes; ++i) {
    program.takes.push_back({Rank{1}, Label::partial, 255, 255});
    program.gives.push_back({Rank{1}, Label::gather, 1, 1});
  }
  auto& steps = program.lanes[0].steps;
  steps.push_back(step::any({0, kMaxTakes}, {Space::tmp, 4294967295u}, true, {Space::tmp, 0}, {0, kMaxGives}));
  steps.push_back(step::copy({Space::out, 1}, {Space::in, 2}));
  steps.push_back(step::receive({3, 2}, {Space::tmp, 2}, {7, 1}));
  steps.push_back(step::after(255, 4294967295u, Step{}));
  steps.push_back(step::receive({500, 2}, {Space::tmp, 2}));  // channels that are not there: for the verifier to say
  steps.push_back(Step{});
  program.lanes.push_back({"", {}});
  plan.schedule.clear();
  CHECK((parse_plan(to_text(plan)) == plan));
}

TEST_CASE("comments, empty lines, blanks and left out notes do not matter") {
  std::string text = replaced(kTwoRanks, "take 0(ring<1)", "take 0");
  text = replaced(text, "after 0(send):1", "after 0:1");
  text = replaced(text, "rank 1", "\n# the second rank\n\r\n   rank   1  ");
  CHECK((parse_plan(text) == two_ranks()));
}

TEST_CASE("errors in a plan's text name the line and what is wrong") {
  const auto after = [](const char* what, const char* by) { return refusal(replaced(kTwoRanks, what, by)); };
  CHECK(refusal("") == "plan text, line 0: nothing there; a plan begins with 'plan'");
  CHECK(after("plan swap", "plain swap") == "plan text, line 1: 'plain' where 'plan' is expected");
  CHECK(after("all_reduce", "all_redoce") == "plan text, line 1: 'all_redoce' is not a collective");
  CHECK(after("parts 1", "parts") == "plan text, line 1: the line ends where the number of parts is expected");
  CHECK(after("rank 1 tmp", "rank 2 tmp") == "plan text, line 9: rank 2 where rank 1 of 2 is expected");
  CHECK(after("ring from", "rang from") ==
        "plan text, line 3: 'rang' is not a label: one of ring, reduce, partial, rail, gather, "
        "direct");
  CHECK(after("credits 2", "credits 256") ==
        "plan text, line 3: '256' is not the number of credits, a number from 0 to 255");
  CHECK(after("give 0 ring to", "give 1 ring to") == "plan text, line 4: channel 1 where channel 0 is expected");
  CHECK(after("lane 1 receive", "lane 0 receive") == "plan text, line 7: lane 0 where lane 1 is expected");
  CHECK(after("  0: with", "  1: with") == "plan text, line 6: step 1 where step 0 is expected");
  CHECK(after("with in:0", "with on:0") == "plan text, line 6: 'on' is not a space: one of none, in, out, tmp");
  CHECK(after("with in:0", "with in:-1") == "plan text, line 6: '-1' is not a block, a number from 0 to 4294967295");
  CHECK(after("(ring<1)", "(rail<1)") == "plan text, line 8: channel 0 is (ring<1), not (rail<1)");
  CHECK(after("into out:7", "into out:7 x") == "plan text, line 8: 'x' is more than the line should hold");
  CHECK(after("give 0(ring>1)", "give 0 2") ==
        "plan text, line 6: channel 2 after channel 0: they must follow each other");
  CHECK(after("give 0(ring>1)", "give 0 1 2 3 4 5 6 7 8") == "plan text, line 6: more than 8 channels in one step");
  CHECK(after("rank 0 tmp 3", "0: with in:0") == "plan text, line 2: '0:' where 'rank 0' is expected");
  CHECK(after("end\n", "") == "plan text, line 15: the text is cut off; a plan's last line is 'end'");
  CHECK(after("end\n", "end\nmore") == "plan text, line 17: 'more' after the end of the plan");
  CHECK(after("ranks 2", "ranks 3") == "plan text, line 16: the plan ends after 2 ranks of 3");
  CHECK(after("steps 1", "steps 2") == "plan text, line 7: lane 0 of rank 0 ends after 1 steps of 2");
  CHECK(after("steps 1", "steps 0") == "plan text, line 6: step 0 of a lane of 0 steps");
}

TEST_CASE("a text that is cut off anywhere is refused") {
  const std::string whole = kTwoRanks;
  for (std::size_t n = 0; n + 1 < whole.size(); ++n) {
    INFO(whole.substr(0, n));
    CHECK_THROWS_AS(parse_plan(whole.substr(0, n)), Error);
  }
  CHECK((parse_plan(whole.substr(0, whole.size() - 1)) == two_ranks()));  // without its last newline
}

TEST_CASE("a picture holds every step with its text and every message") {
  const std::string svg = to_svg(two_ranks());
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(occurrences(svg, "<title>") == 4);
  CHECK(occurrences(svg, "rank 0 lane 1 step 0: after 0(send):1 take 0(ring&lt;1) with in:1 combine into out:7") == 1);
  CHECK(occurrences(svg, "stroke-width=\"0.9\"") == 2);  // messages
  CHECK(occurrences(svg, ">rank 1</text>") == 1);
  CHECK(occurrences(svg, "swap all_reduce: 2 ranks, 1 part, 2 ticks") == 1);
  CHECK(occurrences(svg, ">+o7</text>") == 2);
  CHECK(occurrences(svg, ">i0</text>") == 2);
  CHECK(occurrences(svg, ">firing order, tick</text>") == 1);
  CHECK(occurrences(svg, "stroke-dasharray") == 3);  // two waits, one entry of the legend
  CHECK(occurrences(svg, ">waits for that step of its rank (after)</text>") == 1);
  CHECK(occurrences(svg, ">no message</text>") == 0);
  CHECK(occurrences(svg, ">node 0</text>") == 0);
  CHECK(occurrences(svg, "between nodes") == 0);
  CHECK(occurrences(svg, "STUCK") == 0);
}

TEST_CASE("every message of HO-Ring on 2 x 4 ranks is drawn") {
  const Groups groups = Groups::even(2, 4);
  const Plan plan = whole_plan(*find_schedule("ho_ring"), groups, {Kind::all_reduce, 8}, 2);
  int steps = 0, messages = 0;
  for (const Program& program : plan.programs)
    for (const Lane& lane : program.lanes)
      for (const Step& step : lane.steps) ++steps, messages += step.gives;
  const std::string svg = to_svg(plan);
  CHECK(occurrences(svg, "<title>") == steps);
  CHECK(occurrences(svg, "stroke-width=\"0.9\"") == messages);
}

TEST_CASE("a picture shows the nodes and which messages cross them") {
  const Groups groups = Groups::even(2, 4);
  const Plan plan = whole_plan(*find_schedule("ho_ring"), groups, {Kind::all_reduce, 8}, 1);
  const std::vector<int> node_of = {0, 0, 0, 0, 1, 1, 1, 1};
  int near = 0, far = 0, waits = 0;
  for (std::size_t r = 0; r < plan.programs.size(); ++r)
    for (const Lane& lane : plan.programs[r].lanes)
      for (const Step& step : lane.steps) {
        waits += step.after_steps != 0;
        for (std::size_t i = 0; i < step.gives; ++i)
          ++(node_of[r] == node_of[static_cast<std::size_t>(index(plan.programs[r].gives[step.give + i].peer))] ? near
                                                                                                                : far);
      }
  REQUIRE(far == 16);  // one block a rail and direction for each half of the all-reduce
  std::int64_t stuck = -1;
  const std::string svg = to_svg(plan, node_of, &stuck);
  CHECK(stuck == 0);
  CHECK(occurrences(svg, "stroke-width=\"0.9\"") == near);
  CHECK(occurrences(svg, "stroke-width=\"2.2\"") == far + 1);  // with the legend's entry
  CHECK(occurrences(svg, "stroke-dasharray") == waits + (waits > 0));
  CHECK(occurrences(svg, ">node 0</text>") == 1);
  CHECK(occurrences(svg, ">node 1</text>") == 1);
  CHECK(occurrences(svg, ">message between nodes</text>") == 1);
}

TEST_CASE("a picture draws the ranks of a node together, whatever their numbers") {
  const Plan plan = whole_plan(*find_schedule("ring"), Groups::even(1, 4), {Kind::all_gather, 4}, 1);
  const std::string svg = to_svg(plan, std::vector<int>{0, 1, 0, 1});
  std::size_t at = 0;
  for (const char* next : {">rank 0</text>", ">rank 2</text>", ">rank 1</text>", ">rank 3</text>"}) {
    at = svg.find(next, at);
    CHECK(at != std::string::npos);
  }
}

TEST_CASE("a picture numbers a rank's own share as the whole buffer") {
  const std::string gather =
      to_svg(whole_plan(*find_schedule("two_level"), Groups::even(1, 3), {Kind::reduce_scatter, 3}, 2));
  for (const char* block : {">+o0<", ">+o1<", ">+o2<", ">+o3<", ">+o4<", ">+o5<"})
    CHECK(occurrences(gather, block) == 1);
}

TEST_CASE("a picture of a plan that gets stuck says where") {
  Plan plan = two_ranks();
  plan.programs[0].lanes[0].steps.clear();
  std::int64_t stuck = 0;
  const std::string svg = to_svg(plan, {}, &stuck);
  CHECK(stuck == 2);
  CHECK(occurrences(svg, "STUCK: 2 steps can never fire") == 1);
  CHECK(occurrences(svg, ">stuck at 0</text>") == 2);
}

TEST_CASE("a picture of a plan with broken channel numbers is drawn all the same") {
  Plan plan = two_ranks();
  plan.programs[0].lanes[0].steps[0].give = 99;
  plan.programs[1].lanes[1].steps[0].take = 99;
  plan.programs[1].lanes[1].steps[0].after_lane = 77;
  CHECK(occurrences(to_svg(plan), "STUCK: 3 steps can never fire") == 1);
}
