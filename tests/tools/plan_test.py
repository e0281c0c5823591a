"""hoccl-plan and hoccl-info from outside: statuses, what verify proves and refuses, and that texts go round."""
import os
import subprocess
import tempfile
import unittest

BIN = os.environ.get("HOCCL_BIN", os.path.join(os.path.dirname(__file__), "../../build/dev/bin"))
SHAPE = ("--nodes", "2", "--ranks-per-node", "4")


def call(program, *arguments, **environment):
    result = subprocess.run([os.path.join(BIN, program), *arguments], capture_output=True, text=True, timeout=60,
                            env={**os.environ, **environment})
    return result.returncode, result.stdout, result.stderr


class Plan(unittest.TestCase):
    def test_every_schedule_is_proved_for_every_collective(self):
        names = [line.split()[0] for line in call("hoccl-plan", "list")[1].splitlines()]
        self.assertEqual(sorted(names), ["direct", "ho_ring", "ring", "two_level"])
        for name in names:
            for collective in ("all_reduce", "reduce_scatter", "all_gather"):
                status, text, _ = call("hoccl-plan", "verify", "--schedule", name, "--collective", collective, *SHAPE)
                self.assertEqual(status, 0, text)
                self.assertIn("\nout of place: proved (", text)
                self.assertIn("\nin place: proved (", text)

    def test_the_blocks_that_leave_a_node_are_told(self):
        text = call("hoccl-plan", "verify", "--collective", "all_gather", "--nodes", "4", "--ranks-per-node", "2")[1]
        self.assertIn("node 3: 6 blocks leave, 6 enter\n", text)
        self.assertIn("node 3: 0.75 S leaves, 0.75 S enters\n", text)

    def test_a_damaged_plan_is_not_proved(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mine.plan")
            self.assertEqual(call("hoccl-plan", "print", *SHAPE, "-o", path)[0], 0)
            status, report, _ = call("hoccl-plan", "verify", "--plan", path)
            self.assertEqual(status, 0)
            self.assertIn(" on 8 ranks (their nodes are unknown), 1 part a block\n", report)
            self.assertNotIn("node 0", report)
            with open(path) as file:
                text = file.read()
            self.assertEqual(call("hoccl-plan", "print", "--plan", path)[1], text)
            damaged = text.replace("into out:0 give", "into out:1 give", 1)
            self.assertNotEqual(damaged, text)
            with open(path, "w") as file:
                file.write(damaged)
            status, report, _ = call("hoccl-plan", "verify", "--plan", path)
            self.assertEqual(status, 1)
            self.assertIn("NOT PROVED", report)
            self.assertIn("output block 0", report)
            with open(path, "w") as file:
                file.write(text.replace("combine", "combined", 1))
            status, _, error = call("hoccl-plan", "verify", "--plan", path)
            self.assertEqual(status, 2)
            self.assertRegex(error, r"plan text, line \d+: 'combined")

    def test_one_rank_is_printed_alone(self):
        status, text, _ = call("hoccl-plan", "print", "--schedule", "ring", *SHAPE, "--rank", "5")
        self.assertEqual(status, 0)
        self.assertTrue(text.startswith("rank 5 tmp "))
        self.assertEqual(text.count("rank "), 1)

    def test_findings_that_are_left_out_are_told(self):
        with tempfile.NamedTemporaryFile("w", suffix=".plan") as file:
            file.write(call("hoccl-plan", "print", *SHAPE)[1].replace("into out:0", "into out:1"))
            file.flush()
            report = call("hoccl-plan", "verify", "--plan", file.name)[1]
            self.assertEqual(report.count("\nvalues: "), 24)
            self.assertEqual(report.count("\nand more: the first 12 are shown\n"), 2)
            file.seek(0)
            file.truncate()
            small = call("hoccl-plan", "print", "--schedule", "ring", "--nodes", "1", "--ranks-per-node", "2")[1]
            file.write(small.replace("with in:1 give", "with in:0 give", 1))
            file.flush()
            report = call("hoccl-plan", "verify", "--plan", file.name)[1]
            self.assertIn("combines different blocks", report)
            self.assertNotIn("and more", report)

    def test_numbers_of_one_are_singular_and_the_steps_fired_are_explained(self):
        text = call("hoccl-plan", "verify", "--schedule", "ring", "--nodes", "1", "--ranks-per-node", "2")[1]
        self.assertIn("out of place: proved (24 steps fired: 2 rounds, value run and order run)\n", text)
        self.assertIn("a round: 6 steps in all, at most 3 a rank in at most 1 lane; ", text)

    def test_a_plan_that_gets_stuck_is_drawn_and_gives_1(self):
        lines = call("hoccl-plan", "print", "--schedule", "ring", "--nodes", "1", "--ranks-per-node", "2")[1].splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("  0: "))
        lines[first] = "  0: nothing"
        with tempfile.NamedTemporaryFile("w", suffix=".plan") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            status, text, error = call("hoccl-plan", "draw", "--plan", file.name)
        self.assertEqual(status, 1)
        self.assertTrue(text.endswith("</svg>\n"))
        self.assertIn("STUCK", text)
        self.assertRegex(error, r"^hoccl-plan: the plan gets stuck: \d+ steps? can never fire; it is drawn as far as")

    def test_parts_of_a_plan_from_a_file_keep_to_the_range(self):
        for parts in (0, 9):
            with tempfile.NamedTemporaryFile("w", suffix=".plan") as file:
                file.write(f"plan mine all_reduce ranks 1 parts {parts}\nrank 0 tmp 0\nend\n")
                file.flush()
                status, _, error = call("hoccl-plan", "verify", "--plan", file.name)
            self.assertEqual((status, f" has {parts} parts: must be 1 to 8" in error), (2, True), error)

    def test_a_drawing_is_svg(self):
        status, text, error = call("hoccl-plan", "draw", *SHAPE)
        self.assertEqual((status, error), (0, ""))
        self.assertIn(">node 1</text>", text)
        self.assertTrue(text.startswith("<svg ") and text.endswith("</svg>\n"))

    def test_wrong_usage_is_named_and_gives_2(self):
        for arguments, named in ((["verify", "--schedule", "nope"], "'nope': one of direct, ho_ring, ring, two_level"),
                                 (["verify", "--collective", "nope"], "no collective 'nope'"),
                                 (["verify", "--bogus"], "--bogus"),
                                 (["verify", "--parts", "99"], "--parts: '99' must be 1 to 8"),
                                 (["foo"], "no command 'foo': one of print, verify, draw, list"),
                                 (["print", "--plan", "/dev/zero"], "/dev/zero is longer than the 256 MiB"),
                                 (["draw", "--plan", "x", "--schedule", "ring"], "--plan and --schedule exclude"),
                                 (["print", "--plan", "x", "--collective", "all_reduce"], "--plan and --collective"),
                                 (["verify", "--nodes", "2", "--plan", "x"], "--plan and --nodes exclude"),
                                 (["print", "--rank", "8", *SHAPE], "no rank 8 in a plan of 8 ranks"),
                                 (["verify", "--plan", "/none"], "cannot read the plan /none: No such file"),
                                 ([], "subcommand is required")):
            status, _, error = call("hoccl-plan", *arguments)
            self.assertEqual((status, named in error), (2, True), error)


class Info(unittest.TestCase):
    def test_it_shows_build_transports_schedules_and_knobs_with_where_they_are_from(self):
        status, text, error = call("hoccl-info", HOCCL_TRANSPORTS="^shm", NCCL_HOSTID="rack7", HOCCL_TIMOUT="1")
        self.assertEqual((status, error), (0, ""))
        for part in ("hoccl ", "kernels ", "\n  tcp ", "\n  ho_ring ", "(excluded by HOCCL_TRANSPORTS)",
                     "HOCCL_TRANSPORTS = ^shm (environment, HOCCL_TRANSPORTS)",
                     "HOCCL_HOSTID = rack7 (environment, NCCL_HOSTID)", "HOCCL_START_TIMEOUT = 120 (default)",
                     "warning: HOCCL_TIMOUT"):
            self.assertIn(part, text)

    def test_names_that_do_not_exist_are_refused_in_the_librarys_words(self):
        for knob, text in (("HOCCL_SCHEDULE", "names the schedule nope, which does not exist; there are: "),
                           ("HOCCL_TRANSPORTS", "names the transport nope, which this build does not have; there are: ")):
            status, shown, error = call("hoccl-info", **{knob: "nope"})
            self.assertEqual(status, 1)
            self.assertIn(text, error)
            self.assertIn(f"{knob} = nope", shown)

    def test_a_bad_knob_is_named_and_gives_1(self):
        status, text, error = call("hoccl-info", HOCCL_TIMEOUT="soon")
        self.assertEqual(status, 1)
        self.assertIn("HOCCL_TIMEOUT", error)
        self.assertIn("HOCCL_TIMEOUT = soon", text)


if __name__ == "__main__":
    unittest.main()
