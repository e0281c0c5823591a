"""What tools/cluster and hoccl-run --cluster promise: nodes of their own, links at the stated rate, results right across them,
and nothing left behind. Needs root, network namespaces and tc; says SKIPPED where they are missing.
"""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
BIN = os.environ.get("HOCCL_BIN", os.path.join(ROOT, "build/dev/bin"))
LIMIT = 100  # seconds


class Cluster(unittest.TestCase):
    def setUp(self):
        probe = subprocess.run(["unshare", "--net", "sh", "-c", "ip link add v0 type veth peer name v1 && "
                                "tc qdisc add dev v0 root tbf rate 1gbit burst 131072 latency 20ms"],
                               capture_output=True, text=True, timeout=LIMIT) if os.geteuid() == 0 else None
        if probe is None or probe.returncode != 0:
            print("SKIPPED: clusters of namespaces need root, iproute2 and a kernel with veth and tbf", flush=True)
            self.skipTest("no root" if probe is None else probe.stderr)
        self.folder = tempfile.mkdtemp(prefix="hoccl-cluster.")
        # Addresses of its own, so that several test runs and a user's cluster do not meet.
        self.env = {**os.environ, "HOCCL_CLUSTER": self.folder + "/state", "HOCCL_CLUSTER_NET": f"10.{100 + os.getpid() % 100}"}

    def tearDown(self):
        if hasattr(self, "folder"):
            self.run_cluster("down")
            os.rmdir(self.folder)

    def run_cluster(self, *arguments):
        # Its nodes outlive the command, so they must not hold a pipe of ours.
        with tempfile.TemporaryFile("w+") as out:
            done = subprocess.run([os.path.join(ROOT, "tools/cluster"), *map(str, arguments)], stdout=out, stderr=out,
                                  stdin=subprocess.DEVNULL, timeout=LIMIT, env=self.env)
            out.seek(0)
            return done.returncode, out.read()

    def launch(self, *arguments):
        return subprocess.run([os.path.join(BIN, "hoccl-run"), "--timeout", "90", *map(str, arguments)], capture_output=True,
                              text=True, timeout=LIMIT, env=self.env)

    def test_ranks_run_on_nodes_of_their_own_and_their_results_are_right(self):
        status, text = self.run_cluster("up", 2, 1, "1gbit")
        self.assertEqual(status, 0, text)
        names = self.launch("-n", 4, "--cluster", "--tag", "hostname")
        self.assertEqual(sorted(names.stdout.split("\n")[:-1]), ["[0] node0", "[1] node0", "[2] node1", "[3] node1"], names.stderr)
        for program in ("all_reduce_perf", "all_gather_perf", "reduce_scatter_perf"):
            result = self.launch("-n", 4, "--cluster", program, "--schedule", "ring,two_level,ho_ring", "-b", "4K", "-e", "1M",
                                 "-f", 256, "-n", 1)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertIn("# Out of bounds values : 0 OK", result.stdout)
            self.assertRegex(result.stdout, r"local\s+1\n")
            self.assertNotIn("node  2", result.stdout)
        status, text = self.run_cluster("status")
        sent = [int(n) for n in re.findall(r"out: +Sent (\d+) bytes", text)]
        self.assertEqual(len(sent), 2, text)
        for octets in sent:
            self.assertGreater(octets, 2**20)  # the payload went over the shaped links
        holders = [int(pathlib.Path(self.folder, "state", f"node{i}.pid").read_text()) for i in range(2)]
        self.assertEqual(self.run_cluster("down")[0], 0)
        for pid in holders:
            command = pathlib.Path(f"/proc/{pid}/comm")
            self.assertFalse(command.exists() and command.read_text() == "sleep\n")

    def test_wrong_words_are_named(self):
        self.assertIn("not 'x'", self.run_cluster("up", "x")[1])
        self.assertIn("rate fast", self.run_cluster("up", 2, 1, "fast")[1])
        self.assertIn("cluster: down", self.run_cluster("status")[1])
        result = self.launch("-n", 2, "--cluster", "true")
        self.assertEqual(result.returncode, 2)
        self.assertIn("tools/cluster up", result.stderr)


if __name__ == "__main__":
    unittest.main()
