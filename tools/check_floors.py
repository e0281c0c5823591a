#!/usr/bin/env python3
"""Holds the includes of the library to the floors of the architecture (docs/design.md), which the table below states.

A file may include its own folder, what its folder's row lists, and nothing else of the project: not upward, not
sideways. Also: only src/base/config.cpp reads the environment. Usage: check_floors.py [ROOT]; status 1 when broken.
"""
import os
import re
import sys

# folder: (floor, what it may include beside its own folder). An entry is a folder (all below it) or one file. The
# longest folder that a path lies in is its row. `*` stands for every folder on a lower floor.
FLOORS = {
    "src/base": (0, []),
    "src/plan": (1, ["*"]),
    "src/device": (1, ["*"]),
    "src/bootstrap": (1, ["*"]),
    "topology": (1, ["*"]),
    "src/schedules": (2, ["src/base", "src/plan", "topology/groups.hpp"]),
    "src/verify": (2, ["src/base", "src/plan", "topology/groups.hpp"]),
    "src/simulate": (2, ["src/base", "src/plan", "topology/groups.hpp", "topology/machine.hpp", "src/verify/facts.hpp"]),
    "transports": (2, ["src/base", "src/device/device.hpp"]),
    "src/exec": (3, ["src/base", "src/plan", "transports/transport.hpp", "src/device/device.hpp"]),
    "src/comm": (4, ["*"]),
    "src/paro": (5, ["src/base", "src/comm/collectives.hpp"]),
    "src/api": (6, ["*", "include"]),
    "include": (6, []),
}

# Files that see more than their folder, with the reason.
EXCEPTIONS = {
    "src/paro/planner.hpp": ["src/simulate/cost.hpp", "topology/machine.hpp"],  # weighs strategies by cost
    "src/paro/planner.cpp": ["src/simulate/cost.hpp", "topology/machine.hpp"],
}

SCANNED = ("src", "transports", "topology", "include")
ENDINGS = (".h", ".hpp", ".cpp", ".c", ".ipp", ".cu", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')
GETENV = re.compile(r"\b(secure_)?getenv\b")
ENVIRONMENT_READER = "src/base/config.cpp"
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def home(path):
    """The row of FLOORS that a path belongs to. Each transport is a folder of its own below `transports`."""
    parts = path.split("/")
    for length in range(len(parts) - 1, 0, -1):
        folder = "/".join(parts[:length])
        if folder in FLOORS:
            return folder
    return None


def transport_of(path):
    parts = path.split("/")
    return parts[1] if parts[0] == "transports" and len(parts) > 2 else None


def rule_text(folder):
    floor, allowed = FLOORS[folder]
    seen = ["all lower floors" if entry == "*" else entry for entry in allowed]
    return f"{folder} (floor {floor}) may include its own folder" + "".join(f", {entry}" for entry in seen)


def lies_in(path, entry):
    return path == entry or path.startswith(entry + "/")


def refusal(source, target):
    """Why `source` may not include `target`, or None."""
    here, there = home(source), home(target)
    if there is None:
        return f"{target} is outside the library, which includes nothing of tools, perf or tests"
    floor, allowed = FLOORS[here]
    if here == there:
        mine, other = transport_of(source), transport_of(target)
        if mine and other and mine != other:
            return f"transport {mine} (floor {floor}) includes transport {other} (floor {floor}): transports do not know each other"
        if mine and not other and target != "transports/transport.hpp":
            return f"transport {mine} (floor {floor}) includes {target}: a transport sees transports/transport.hpp only"
        return None
    for entry in allowed + EXCEPTIONS.get(source, []):
        if FLOORS[there][0] < floor if entry == "*" else lies_in(target, entry):
            return None
    way = "upward" if FLOORS[there][0] > floor else "sideways" if FLOORS[there][0] == floor else "past its list"
    return f"floor {floor} ({here}) includes floor {FLOORS[there][0]} ({there}) {way}: {target}; {rule_text(here)}"


def resolve(root, source, name):
    """The project's path of an include: from the project's root, from include/, or beside the including file."""
    beside = os.path.normpath(os.path.join(os.path.dirname(source), name))
    if home(name):
        return os.path.normpath(name)
    public = "include/" + name
    for path in (public, beside):
        if os.path.isfile(os.path.join(root, path)):
            return path
    if name.startswith("."):
        return beside
    top = name.split("/")[0]
    return name if top in ("tools", "perf", "tests") else None


def without_comments_and_texts(text):
    return NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def check_file(root, source):
    with open(os.path.join(root, source), encoding="utf-8") as file:
        text = file.read()
    if home(source) is None:
        yield 1, f"{source} is in no folder that the table of floors knows: give the folder a row"
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        target = match and resolve(root, source, match.group(1))
        why = target and refusal(source, target)
        if why:
            yield number, why
    if source != ENVIRONMENT_READER:
        for number, line in enumerate(without_comments_and_texts(text).splitlines(), 1):
            if GETENV.search(line):
                yield number, f"getenv outside {ENVIRONMENT_READER}: make it a row of the table of knobs there"


def sources(root):
    for top in SCANNED:
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(files):
                if name.endswith(ENDINGS):
                    yield os.path.relpath(os.path.join(folder, name), root)


def main(arguments):
    root = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    paths = list(sources(root))
    if not paths:
        print(f"check_floors: no source files below {root}: not the project's root?")
        return 1
    findings = [f"{path}:{number}: {why}" for path in paths for number, why in check_file(root, path)]
    for finding in findings:
        print(finding)
    print(f"check_floors: {len(paths)} files, {len(findings)} broken rules")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
