"""What hoccl-run promises: the variables of each rank, statuses, deadlines, and that nothing is left behind.

The ranks are small shell or Python programs, so that nothing of the library is needed. HOCCL_BIN: where the built
programs are. Times are asserted only as upper bounds that are far above what a loaded machine needs.
"""
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BIN = os.environ.get("HOCCL_BIN", os.path.join(os.path.dirname(__file__), "../../build/dev/bin"))
RUN = os.path.join(BIN, "hoccl-run")
LIMIT = 60  # seconds; a launcher that hangs fails here


def launch(*arguments, **options):
    return subprocess.run([RUN, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT, **options)


def alive(pid):
    """Whether the process runs; a zombie that its adopter has not reaped yet does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def lines_of(path):
    try:
        with open(path) as file:
            return file.read().splitlines()
    except OSError:
        return []


class Environment(unittest.TestCase):
    SHOW = ("echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $HOCCL_ID "
            "${HOCCL_HOSTID-none}")

    def test_each_rank_gets_its_own_numbers(self):
        result = launch("-n", 3, "sh", "-c", self.SHOW)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        rows = sorted(line.split() for line in result.stdout.splitlines())
        port = rows[0][5]
        self.assertTrue(0 < int(port) < 65536)
        expected = [[str(r), "3", str(r), "3", "127.0.0.1", port, "127.0.0.1:" + port, "none"] for r in range(3)]
        self.assertEqual(rows, expected)

    def test_pretended_nodes_have_different_identities(self):
        result = launch("-n", 6, "--nodes", 2, "sh", "-c", self.SHOW)
        rows = sorted(line.split() for line in result.stdout.splitlines())
        self.assertEqual([row[:4] for row in rows], [[str(r), "6", str(r % 3), "3"] for r in range(6)])
        nonce = rows[0][7].removesuffix("-node0")
        self.assertRegex(nonce, "^[0-9a-f]{16}$")
        self.assertEqual([row[7] for row in rows], [f"{nonce}-node{r // 3}" for r in range(6)])
        other = launch("-n", 1, "--nodes", 1, "sh", "-c", self.SHOW).stdout.split()[7]
        self.assertNotEqual(other, rows[0][7])

    def test_values_that_the_caller_had_are_replaced_and_others_kept(self):
        result = launch("-n", 1, "sh", "-c", "echo $RANK $MINE", env={**os.environ, "RANK": "77", "MINE": "kept"})
        self.assertEqual(result.stdout, "0 kept\n")

    def test_rank_0_can_listen_on_the_port_and_nobody_else_is_given_it(self):
        program = ("import os, socket\n"
                   "port = int(os.environ['MASTER_PORT'])\n"
                   "mine = socket.socket()\n"
                   "mine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
                   "mine.bind(('127.0.0.1', port))\n"
                   "mine.listen()\n"
                   "socket.create_connection(('127.0.0.1', port), 5)\n"
                   "other = socket.socket()\n"
                   "try:\n"
                   "    other.bind(('127.0.0.1', port))\n"
                   "except OSError:\n"
                   "    print('held')\n")
        result = launch("-n", 1, sys.executable, "-c", program)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "held\n", ""))

    def test_the_port_is_held_before_anyone_listens(self):
        with subprocess.Popen([RUN, "-n", "1", "sh", "-c", "echo $MASTER_PORT; exec sleep 30"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
            port = int(job.stdout.readline())
            with socket.socket() as other, self.assertRaises(OSError):
                other.bind(("127.0.0.1", port))
            job.terminate()
            job.wait(LIMIT)

    def test_ranks_read_an_empty_input(self):
        self.assertEqual(launch("-n", 1, "sh", "-c", "wc -c", input="not for ranks").stdout.strip(), "0")

    def test_fifty_ranks(self):
        result = launch("-n", 50, "--nodes", 10, "--tag", "sh", "-c", "echo $RANK $LOCAL_RANK")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(sorted(result.stdout.splitlines()), sorted(f"[{r}] {r} {r % 5}" for r in range(50)))


class Endings(unittest.TestCase):
    def test_success_of_all_is_success(self):
        self.assertEqual(launch("-n", 4, "true").returncode, 0)

    def test_status_of_the_rank_that_failed_is_passed_on(self):
        result = launch("-n", 3, "sh", "-c", "[ $RANK = 1 ] && exit 42; exec sleep 30")
        self.assertEqual(result.returncode, 42)
        self.assertRegex(result.stderr, r"^hoccl-run: rank 1 \(pid \d+\) ended with status 42; ending 2 running\n$")

    def test_a_rank_killed_by_a_signal_gives_128_plus_its_number(self):
        result = launch("-n", 2, "sh", "-c", "[ $RANK = 1 ] && kill -SEGV $$; exec sleep 30")
        self.assertEqual(result.returncode, 128 + signal.SIGSEGV)
        self.assertIn("was killed by signal 11 (Segmentation fault)", result.stderr)
        self.assertIn("rank 1 ", result.stderr)

    def test_a_failing_rank_ends_the_others_quickly(self):
        start = time.monotonic()
        self.assertEqual(launch("-n", 4, "sh", "-c", "[ $RANK = 2 ] && exit 1; exec sleep 50").returncode, 1)
        self.assertLess(time.monotonic() - start, 30)

    def test_ranks_that_ignore_the_request_to_end_are_killed(self):
        program = "trap '' TERM; [ $RANK = 0 ] && { sleep 0.3; exit 9; }; while :; do sleep 0.1; done"
        start = time.monotonic()
        result = launch("-n", 2, "sh", "-c", program)
        self.assertEqual(result.returncode, 9)
        self.assertGreater(time.monotonic() - start, 2.0)
        self.assertIn("killing rank 1, still there after 2 s", result.stderr)

    def test_others_may_end_in_order_and_do_not_change_the_status(self):
        program = "trap 'echo bye $RANK; exit 3' TERM; [ $RANK = 0 ] && { sleep 0.5; exit 9; }; while :; do sleep 0.1; done"
        result = launch("-n", 2, "sh", "-c", program)
        self.assertEqual((result.returncode, result.stdout), (9, "bye 1\n"))

    def test_time_that_is_up_gives_124_and_the_names_of_those_still_running(self):
        result = launch("-n", 4, "--timeout", 1, "sh", "-c", "[ $RANK = 2 ] && exit 0; exec sleep 50")
        self.assertEqual(result.returncode, 124)
        self.assertIn("time is up after 1 s; still running: rank 0, 1, 3; ending 3 running", result.stderr)

    def test_time_that_is_not_up_changes_nothing(self):
        result = launch("-n", 2, "--timeout", 50, "true")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_children_of_ranks_end_with_them(self):
        with tempfile.TemporaryDirectory() as folder:
            pids = os.path.join(folder, "pids")
            program = f"sleep 300 & echo $! >> {pids}; [ $RANK = 0 ] && sleep 0.5 && exit 7; wait"
            self.assertEqual(launch("-n", 2, "sh", "-c", program).returncode, 7)
            self.assertEqual(len(lines_of(pids)), 2)
            for pid in lines_of(pids):
                self.assertTrue(wait_until(lambda: not alive(pid)), f"process {pid} is left behind")


class Signals(unittest.TestCase):
    def start(self, folder, program="exec sleep 300", ranks=3):
        self.pids = os.path.join(folder, "pids")
        job = subprocess.Popen([RUN, "-n", str(ranks), "sh", "-c", f"echo $$ >> {self.pids}; {program}"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(wait_until(lambda: len(lines_of(self.pids)) == ranks))
        return job

    def expect_nothing_left(self):
        for pid in lines_of(self.pids):
            self.assertTrue(wait_until(lambda: not alive(pid)), f"rank with pid {pid} is left behind")

    def test_sigterm_to_the_launcher_leaves_no_process(self):
        with tempfile.TemporaryDirectory() as folder, self.start(folder) as job:
            job.send_signal(signal.SIGTERM)
            _, text = job.communicate(timeout=LIMIT)
            self.assertEqual(job.returncode, 128 + signal.SIGTERM)
            self.assertIn("got Terminated, passing it on to all ranks; ending 3 running", text)
            for pid in lines_of(self.pids):
                self.assertFalse(alive(pid))

    def test_sigint_reaches_the_ranks_as_sigint(self):
        program = f"exec {sys.executable} -c 'import time; time.sleep(300)'"
        with tempfile.TemporaryDirectory() as folder, self.start(folder, program) as job:
            time.sleep(1)  # let Python install its handler; earlier, the signal simply kills it
            job.send_signal(signal.SIGINT)
            _, text = job.communicate(timeout=LIMIT)
            self.assertEqual(job.returncode, 128 + signal.SIGINT)
            self.assertIn("KeyboardInterrupt", text)
            self.expect_nothing_left()

    def test_a_killed_launcher_takes_its_ranks_along(self):
        with tempfile.TemporaryDirectory() as folder, self.start(folder) as job:
            job.kill()
            job.communicate(timeout=LIMIT)
            self.expect_nothing_left()


class Output(unittest.TestCase):
    def test_tagged_lines_never_mix(self):
        program = ("import os, sys\n"
                   "for i in range(200):\n"
                   "    for part in ('line ', str(i), ' of ', os.environ['RANK'], '\\n'):\n"
                   "        os.write(1, part.encode())\n")
        result = launch("-n", 4, "--tag", sys.executable, "-c", program)
        lines = result.stdout.splitlines()
        for rank in range(4):
            mine = [line for line in lines if line.startswith(f"[{rank}] ")]
            self.assertEqual(mine, [f"[{rank}] line {i} of {rank}" for i in range(200)])
        self.assertEqual(len(lines), 800)

    def test_tagged_errors_go_to_the_error_output_and_unfinished_lines_are_finished(self):
        result = launch("-n", 1, "--tag", "sh", "-c", "printf 'one\\ntwo'; printf 'three' >&2")
        self.assertEqual((result.stdout, result.stderr), ("[0] one\n[0] two\n", "[0] three\n"))

    def test_without_tags_output_passes_through_unchanged(self):
        self.assertEqual(launch("-n", 2, "printf", "x\\ny").stdout, "x\nyx\ny")


class Usage(unittest.TestCase):
    def refuse(self, status, text, *arguments, **options):
        result = launch(*arguments, **options)
        self.assertEqual((result.returncode, result.stdout), (status, ""))
        self.assertIn(text, result.stderr)

    def test_help_shows_examples(self):
        result = launch("-h")
        self.assertEqual(result.returncode, 0)
        self.assertIn("hoccl-run -n 8 --nodes 2 all_reduce_perf", result.stdout)

    def test_an_unknown_option_is_named(self):
        self.refuse(2, "unknown option --bogus", "-n", 2, "--bogus", "true")

    def test_options_after_the_program_belong_to_it(self):
        result = launch("-n", 1, "echo", "-n", "7", "--tag", "--bogus")
        self.assertEqual((result.returncode, result.stdout), (0, "7 --tag --bogus"))

    def test_nodes_that_do_not_divide_the_ranks_are_refused_with_both_numbers(self):
        self.refuse(2, "7 ranks cannot be spread evenly over 2 nodes", "-n", 7, "--nodes", 2, "true")

    def test_a_number_of_ranks_is_needed_and_must_be_positive(self):
        self.refuse(2, "--ranks is required", "true")
        self.refuse(2, "--ranks: Value 0 not in range", "-n", 0, "true")

    def test_np_as_mpi_writes_it_is_the_number_of_ranks(self):
        self.assertEqual(launch("-np", 3, "printf", "x").stdout, "xxx")
        self.assertEqual(launch("--timeout", 50, "-np", 2, "printf", "x").stdout, "xx")
        self.assertEqual(launch("-np2", "echo", "-np", "7").stdout, "-np 7\n" * 2)
        self.refuse(2, "--ranks: Value 0 not in range", "-np", 0, "true")

    def test_a_time_limit_that_is_no_time_is_refused(self):
        for wrong in ("nan", "-nan", "inf", "-inf", "-1", "0", "1e7", "5s", "soon", ""):
            self.refuse(2, f"--timeout: '{wrong}' is not a time: give seconds from 0.001 to 1000000",
                        "-n", 1, "--timeout", wrong, "true")
        self.assertEqual(launch("-n", 1, "--timeout", "5e1", "true").returncode, 0)

    def test_a_program_is_needed(self):
        self.refuse(2, "no PROGRAM given", "-n", 2)

    def test_a_program_that_is_not_found_is_named_with_where_it_was_looked_for(self):
        self.refuse(127, "program no-such-program not found", "-n", 2, "no-such-program")
        self.refuse(127, "program ./none not found: No such file or directory", "-n", 2, "./none")
        self.refuse(126, "program /etc/passwd is there, but is no file that may be executed", "-n", 2, "/etc/passwd")

    def test_programs_beside_the_launcher_are_found(self):
        result = launch("-n", 1, "hoccl-run", "-h", env={**os.environ, "PATH": "/usr/bin:/bin"})
        self.assertEqual(result.returncode, 0)
        self.assertIn("Usage: hoccl-run", result.stdout)

    def test_a_file_that_the_system_cannot_run_gives_126(self):
        with tempfile.NamedTemporaryFile("w", suffix=".bin", delete=False) as file:
            file.write("neither a program nor a script\n")
        try:
            os.chmod(file.name, 0o755)
            result = launch("-n", 1, file.name)
            self.assertEqual(result.returncode, 126)
            self.assertTrue(re.search(r"rank 0 cannot run .*\.bin: Exec format error", result.stderr), result.stderr)
        finally:
            os.unlink(file.name)


if __name__ == "__main__":
    unittest.main()
