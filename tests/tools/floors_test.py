"""The floors hold in this tree, and tools/check_floors.py notices what breaks them."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
CHECK = os.path.join(ROOT, "tools/check_floors.py")


def check(root):
    result = subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True, timeout=60)
    return result.returncode, result.stdout + result.stderr


class Tree(unittest.TestCase):
    def test_the_includes_of_this_tree_hold_to_the_floors(self):
        status, text = check(ROOT)
        self.assertEqual(status, 0, text)


class Planted(unittest.TestCase):
    def setUp(self):
        self.copy = tempfile.TemporaryDirectory()
        for folder in ("src", "transports", "topology", "include"):
            shutil.copytree(os.path.join(ROOT, folder), os.path.join(self.copy.name, folder))

    def tearDown(self):
        self.copy.cleanup()

    def plant(self, path, line):
        """Adds the line at the end of a file of the copy; returns where it stands as path:line."""
        full = os.path.join(self.copy.name, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "a+") as file:
            file.write("\n" + line + "\n")
            file.seek(0)
            return f"{path}:{file.read().splitlines().index(line) + 1}"

    def expect(self, where, *texts):
        status, text = check(self.copy.name)
        self.assertEqual(status, 1, text)
        findings = [line for line in text.splitlines() if line.startswith(where + ": ")]
        self.assertEqual(len(findings), 1, text)
        for part in texts:
            self.assertIn(part, findings[0])
        self.assertIn(" 1 broken rules", text)

    def test_an_upward_include_is_named_with_both_floors(self):
        where = self.plant("src/plan/text.cpp", '#include "src/exec/executor.hpp"')
        self.expect(where, "floor 1 (src/plan) includes floor 3 (src/exec) upward",
                    "src/plan (floor 1) may include its own folder, all lower floors")

    def test_a_sideways_include_is_named_with_both_floors(self):
        where = self.plant("src/plan/draw.cpp", '#include "topology/groups.hpp"')
        self.expect(where, "floor 1 (src/plan) includes floor 1 (topology) sideways")

    def test_an_include_of_a_lower_floor_that_is_not_listed_is_named(self):
        where = self.plant("transports/tcp/tcp.cpp", '#include "src/plan/plan.hpp"')
        self.expect(where, "floor 2 (transports) includes floor 1 (src/plan) past its list")

    def test_transports_may_not_include_each_other(self):
        where = self.plant("transports/shm/shm.cpp", '#include "transports/tcp/stream.hpp"')
        self.expect(where, "transport shm (floor 2) includes transport tcp (floor 2)")

    def test_an_include_relative_to_the_file_is_seen(self):
        where = self.plant("src/base/log.cpp", '#include "../comm/wait.hpp"')
        self.expect(where, "floor 0 (src/base) includes floor 4 (src/comm) upward")

    def test_the_library_includes_nothing_of_the_tools(self):
        where = self.plant("src/comm/wait.cpp", '#include "tools/anything.hpp"')
        self.expect(where, "tools/anything.hpp is outside the library")

    def test_an_internal_file_that_includes_the_public_header_is_named(self):
        where = self.plant("src/comm/wait.cpp", '#include "hoccl.h"')
        self.expect(where, "floor 4 (src/comm) includes floor 6 (include) upward")

    def test_reading_the_environment_outside_the_table_of_knobs_is_named(self):
        where = self.plant("src/comm/wait.cpp", 'static const char* home = std::getenv("HOME");')
        self.expect(where, "getenv outside src/base/config.cpp")

    def test_getenv_in_comments_and_texts_is_no_finding(self):
        self.plant("src/comm/wait.cpp", '// getenv is not called here')
        self.plant("src/comm/wait.cpp", 'static const char* text = "getenv";')
        self.plant("src/base/config.cpp", 'static const char* home = std::getenv("HOME");')
        status, text = check(self.copy.name)
        self.assertEqual(status, 0, text)

    def test_a_folder_without_a_floor_is_named(self):
        self.plant("src/novel/thing.cpp", "int x;")
        self.expect("src/novel/thing.cpp:1", "is in no folder that the table of floors knows")


if __name__ == "__main__":
    unittest.main()
