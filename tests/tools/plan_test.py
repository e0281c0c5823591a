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
            self.assertEqual(call("hoccl-plan", "verify", *SHAPE, "--plan", path)[0], 0)
            with open(path) as file:
                text = file.read()
            self.assertEqual(call("hoccl-plan", "print", "--plan", path)[1], text)
            damaged = text.replace("into out:0 give", "into out:1 give", 1)
            self.assertNotEqual(damaged, text)
            with open(path, "w") as file:
                file.write(damaged)
            status, report, _ = call("hoccl-plan", "verify", *SHAPE, "--plan", path)
            self.assertEqual(status, 1)
            self.assertIn("NOT PROVED", report)
            self.assertIn("output block 0", report)
            with open(path, "w") as file:
                file.write(text.replace("combine", "combined", 1))
            status, _, error = call("hoccl-plan", "verify", *SHAPE, "--plan", path)
            self.assertEqual(status, 2)
            self.assertRegex(error, r"plan text, line \d+: 'combined")

    def test_one_rank_is_printed_alone(self):
        status, text, _ = call("hoccl-plan", "print", "--schedule", "ring", *SHAPE, "--rank", "5")
        self.assertEqual(status, 0)
        self.assertTrue(text.startswith("rank 5 tmp "))
        self.assertEqual(text.count("rank "), 1)

    def test_a_drawing_is_svg(self):
        status, text, _ = call("hoccl-plan", "draw", *SHAPE)
        self.assertEqual(status, 0)
        self.assertTrue(text.startswith("<svg ") and text.endswith("</svg>\n"))

    def test_wrong_usage_is_named_and_gives_2(self):
        for arguments, named in ((["verify", "--schedule", "nope"], "'nope': one of ho_ring, ring, two_level"),
                                 (["verify", "--collective", "nope"], "no collective 'nope'"),
                                 (["verify", "--bogus"], "--bogus"),
                                 (["verify", "--parts", "99"], "--parts"),
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

    def test_a_bad_knob_is_named_and_gives_1(self):
        status, text, error = call("hoccl-info", HOCCL_TIMEOUT="soon")
        self.assertEqual(status, 1)
        self.assertIn("HOCCL_TIMEOUT", error)
        self.assertIn("HOCCL_TIMEOUT = soon", text)


if __name__ == "__main__":
    unittest.main()
