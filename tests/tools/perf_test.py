"""What the perf programs promise: right results on every split of ranks, nccl-tests' columns, statuses that say what happened,
and that a rank's death ends the others. HOCCL_BIN: where the built programs are.
"""
import os
import re
import signal
import subprocess
import time
import unittest

BIN = os.environ.get("HOCCL_BIN", os.path.join(os.path.dirname(__file__), "../../build/dev/bin"))
PROGRAMS = ("all_reduce_perf", "all_gather_perf", "reduce_scatter_perf")
LIMIT = 100  # seconds


def perf(program, *arguments, ranks=1, nodes=1, env=None):
    command = [os.path.join(BIN, program), *map(str, arguments)]
    if ranks > 1:
        command = [os.path.join(BIN, "hoccl-run"), "-n", str(ranks), "--nodes", str(nodes), "--timeout", "90", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env={**os.environ, **(env or {})})


def rows_of(result):
    return [line.split() for line in result.stdout.splitlines() if re.match(r"\s*\d", line)]


class Tables(unittest.TestCase):
    def check(self, result, rows):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        found = rows_of(result)
        self.assertEqual(len(found), rows, result.stdout)
        for row in found:
            self.assertEqual((row[8], row[12]), ("0", "0"), result.stdout)
        self.assertIn("# Out of bounds values : 0 OK", result.stdout)
        return found

    def splits(self, counts):
        for ranks in counts:
            for nodes in range(1, ranks + 1):
                if ranks % nodes == 0:
                    for program in PROGRAMS:
                        with self.subTest(program=program, ranks=ranks, nodes=nodes):
                            self.check(perf(program, "-b", 8, "-e", "64K", "-f", 64, "-n", 2, ranks=ranks, nodes=nodes), 3)

    def test_every_split_of_1_to_4_ranks_is_right(self):
        self.splits(range(1, 5))

    def test_every_split_of_5_to_7_ranks_is_right(self):
        self.splits(range(5, 8))

    def test_every_split_of_8_and_9_ranks_is_right(self):
        self.splits(range(8, 10))

    def test_four_ranks_of_one_thread_are_right(self):
        for program in PROGRAMS:
            self.check(perf(program, "-g", 4, "-b", 8, "-e", "1M", "-f", 32, "-n", 2), 4)

    def test_two_threads_of_two_ranks_are_right(self):
        for program in PROGRAMS:
            self.check(perf(program, "-t", 2, "-g", 2, "-b", 8, "-e", "1M", "-f", 32, "-n", 2), 4)

    def test_processes_with_threads_with_several_ranks_are_right(self):
        self.check(perf("all_reduce_perf", "-t", 2, "-g", 2, "-b", 8, "-e", "64K", "-f", 64, "-n", 2, ranks=2, nodes=2), 3)

    def test_a_row_has_the_thirteen_columns_of_nccl_tests(self):
        row = self.check(perf("all_reduce_perf", "-g", 2, "-b", 1024, "-e", 1024), 1)[0]
        self.assertEqual(row[:5], ["1024", "256", "float", "sum", "-1"])
        self.assertEqual(len(row), 13)

    def test_schedules_run_in_turn_and_are_compared(self):
        result = perf("all_reduce_perf", "--schedule", "ring,ho_ring", "-b", "64K", "-e", "64K", "-n", 2, ranks=4, nodes=2)
        rows = self.check(result, 2)
        self.assertEqual([row[13] for row in rows], ["ring", "ho_ring"])
        self.assertRegex(result.stdout, r"#.*median")
        lines = {name: re.search(rf"# {name} +out-of-place (\S+) us \((\S+) to (\S+)\), bound/time", result.stdout)
                 for name in ("ring", "ho_ring")}
        for name, line in lines.items():
            self.assertIsNotNone(line, result.stdout)
            median, least, most = map(float, line.groups())
            self.assertTrue(0 < least <= median <= most, line[0])
            self.assertRegex(result.stdout, rf"# Avg bus bandwidth of {name} +: \d")
        ratio = re.search(r"# ring/ho_ring out-of-place (\S+), in-place \S+ \(times as fast\)", result.stdout)
        self.assertIsNotNone(ratio, result.stdout)
        self.assertAlmostEqual(float(ratio[1]), float(lines["ring"][1]) / float(lines["ho_ring"][1]), delta=0.01)

    def test_without_schedules_there_is_one_average(self):
        result = perf("all_reduce_perf", "-g", 2, "-b", 1024, "-e", 1024)
        self.assertEqual(len(re.findall("Avg bus bandwidth", result.stdout)), 1)
        self.assertRegex(result.stdout, r"# Avg bus bandwidth    : \S+\n")

    def test_counters_show_one_share_a_rail(self):
        result = perf("all_gather_perf", "--counters", "-b", "64K", "-e", "64K", "-n", 2, ranks=4, nodes=2,
                      env={"HOCCL_SCHEDULE": "ho_ring"})
        self.check(result, 1)
        self.assertIn("a share is size / 4 = 16384 bytes", result.stdout)
        rails = re.findall(r"#.*rail +out between nodes +(\d+) bytes = (\d+) share in", result.stdout)
        self.assertEqual(rails, [("16384", "1")] * 4, result.stdout)

    def test_counters_are_whole_bytes_and_count_shares_whatever_the_parts(self):
        result = perf("all_reduce_perf", "--counters", "-b", "2M", "-e", "2M", "-n", 2, ranks=4, nodes=2,
                      env={"HOCCL_SCHEDULE": "ring"})
        self.check(result, 1)
        self.assertIn("node  0 sends to other nodes 3145728 bytes = 6 shares", result.stdout)

    def test_a_size_that_is_cut_to_0_is_told(self):
        for program, cut in (("all_reduce_perf", "an element of float has 4 bytes"),
                             ("all_gather_perf", "-b 32 is the least"), ("reduce_scatter_perf", "-b 32 is the least")):
            result = perf(program, "-g", 2, "-b", 2, "-e", 64, "-f", 32)
            rows = self.check(result, 2)
            self.assertEqual([row[0] for row in rows], ["0", "64"])
            self.assertRegex(result.stdout, "# size 2 is cut to 0: .*" + cut)
            self.assertEqual(result.stdout.count("cut to 0"), 1)

    def test_several_operations_in_one_group_are_right(self):
        for program in PROGRAMS:
            result = perf(program, "-m", 3, "-b", 8, "-e", "64K", "-f", 64, "-n", 2, ranks=4, nodes=2)
            self.check(result, 3)
            self.assertIn("agg iters: 3 ", result.stdout)
            self.check(perf(program, "-g", 2, "-m", 3, "-b", 1024, "-e", 1024), 1)

    def test_options_of_nccl_tests_without_effect_are_taken(self):
        self.check(perf("all_reduce_perf", "-g", 2, "-z", 1, "-r", 0, "-p", 1, "-b", 1024, "-e", 1024), 1)
        self.assertEqual(perf("all_reduce_perf", "-g", 2, "-r", 1).returncode, 2)


class Mistakes(unittest.TestCase):
    def test_an_unknown_option_is_named(self):
        result = perf("all_reduce_perf", "--frobnicate")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--frobnicate", result.stderr)

    def test_an_unknown_schedule_is_named(self):
        result = perf("all_reduce_perf", "-g", 2, "--schedule", "spiral")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("spiral", result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"(?m)^all_reduce_perf: ")
        result = perf("all_reduce_perf", "-g", 2, env={"HOCCL_SCHEDULE": "spiral"})
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("names the schedule spiral, which does not exist; there are: direct, ho_ring, ring, two_level",
                      result.stdout + result.stderr)

    def test_a_rank_that_never_comes_is_named(self):
        script = '[ "$RANK" = 1 ] && exec sleep 30; exec "$0" -b 8 -e 8'
        start = time.monotonic()
        result = subprocess.run([os.path.join(BIN, "hoccl-run"), "-n", "3", "sh", "-c", script,
                                 os.path.join(BIN, "all_reduce_perf")], capture_output=True, text=True, timeout=LIMIT,
                                env={**os.environ, "HOCCL_START_TIMEOUT": "1"})
        self.assertNotEqual(result.returncode, 0)
        self.assertLess(time.monotonic() - start, 25)
        self.assertRegex(result.stdout + result.stderr, r"rank 1\b")

    def test_an_address_that_nobody_answers_is_named(self):
        result = subprocess.run([os.path.join(BIN, "all_reduce_perf"), "-b", "8", "-e", "8"], capture_output=True, text=True,
                                timeout=LIMIT, env={**os.environ, "RANK": "1", "WORLD_SIZE": "2", "HOCCL_ID": "127.0.0.1:1",
                                                    "HOCCL_START_TIMEOUT": "1"})
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("127.0.0.1:1", result.stdout + result.stderr)


class Deaths(unittest.TestCase):
    """A rank is killed while all are busy; the others say so and end, on each kind of link."""

    def kill_one(self, nodes, env=None):
        # Each rank writes its pid, then becomes the program. It ignores the launcher's SIGTERM, so that it lives 2 s more:
        # time to find out by itself.
        script = 'trap "" TERM; echo "pid $RANK $$" >&2; exec "$0" -b 1M -e 1M -n 100000000 -c 0'
        run = subprocess.Popen([os.path.join(BIN, "hoccl-run"), "-n", "4", "--nodes", str(nodes), "--timeout", "60", "sh", "-c",
                                script, os.path.join(BIN, "all_reduce_perf")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env={**os.environ, **(env or {})})
        pids = {}
        while len(pids) < 4:
            match = re.match(r"pid (\d) (\d+)", run.stderr.readline())
            if match:
                pids[int(match[1])] = int(match[2])
        time.sleep(1.0)
        os.kill(pids[2], signal.SIGKILL)
        out, err = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, 128 + signal.SIGKILL, err)
        self.assertIn("rank 2", err)
        # The survivors' own words, not the launcher's: each names the dead rank.
        told = [line for line in (out + err).splitlines() if "rank 2" in line and "without leaving" in line]
        self.assertGreaterEqual(len(told), 3, out + err)

    def test_a_killed_rank_on_one_node_is_named_by_the_others(self):
        self.kill_one(1)

    def test_a_killed_rank_of_two_nodes_is_named_by_the_others(self):
        self.kill_one(2)

    def test_a_killed_rank_over_tcp_alone_is_named_by_the_others(self):
        self.kill_one(1, {"HOCCL_TRANSPORTS": "tcp"})


if __name__ == "__main__":
    unittest.main()
