"""Readers of what programs print and files hold: baselines, run folders, notes, summaries. No GPU is needed here."""

import json
import re
from collections import defaultdict

from check import BASELINE, Trouble, median

# Names of nccl-tests' programs that differ from ours.
OPERATIONS = {"alltoall": "all_to_all"}
SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def nccl_tests(text):
    """nccl-tests' output as {(operation, bytes): microseconds}, of its out-of-place column."""
    times, operation = {}, None
    for line in text.splitlines():
        if start := re.match(r"# Collective test starting: (\w+)_perf", line):
            operation = OPERATIONS.get(start[1], start[1])
        words = line.split()
        if operation and len(words) == 13 and words[0].isdigit():
            times[operation, int(words[0])] = float(words[5])
    return times


def json_lines(text):
    """The JSON objects among lines of other output."""
    # Ranks print at once, so that two objects may share a line.
    found, read = [], json.JSONDecoder().raw_decode
    for line in text.splitlines():
        while (line := line.lstrip()).startswith("{"):
            try:
                value, end = read(line)
            except json.JSONDecodeError:
                break
            found.append(value)
            line = line[end:]
    return found


def pytorch_collectives(text):
    """Output of collectives.py as {(operation, bytes): microseconds}."""
    return {(row["op"], row["bytes"]): 1e3 * row["median_ms"] for row in json_lines(text) if "op" in row}


def unprofiled_steps(text):
    """Output of train.py as {workload: ms}: median over steps of the time of the step's longest rank."""
    ranks = defaultdict(list)
    for row in json_lines(text):
        if "unprofiled_step_ms" in row:
            ranks[row["workload"]].append(row["unprofiled_step_ms"])
    return {workload: median(map(max, zip(*steps))) for workload, steps in ranks.items()}


def baseline(file):
    """The text of a recorded baseline."""
    return (BASELINE / file).read_text()


def block_size(name):
    """`all_reduce_16MiB` as (all_reduce, bytes)."""
    found = re.fullmatch(r"(\w+)_(\d+)(B|KiB|MiB|GiB)", name)
    if not found:
        raise Trouble(f"block `{name}` is not named OPERATION_SIZE")
    return found[1], int(found[2]) * SIZES[found[3]]


def executions(folder):
    """Rows of a run folder's Parquet parts, as dictionaries."""
    import pyarrow.parquet

    parts = sorted(folder.glob("part-*.parquet"))
    if not parts:
        raise Trouble(f"{folder.name} holds no measurements")
    return [row for part in parts for row in pyarrow.parquet.read_table(part).to_pylist()]


def medians_us(rows, state, what):
    """Median over all executions of each block, in us. `what` is `transfer` or `latency`."""
    value = {"transfer": lambda row: row["transfer_ns"], "latency": lambda row: row["end_ns"] - row["start_ns"]}[what]
    found = defaultdict(list)
    for row in rows:
        if row["state"] == state and value(row) is not None:
            found[row["block"]].append(value(row) / 1e3)
    return {block: median(values) for block, values in found.items()}


def exposed(blocks, steps):
    """Which communicating blocks are exposed: {block: (exposed us a step, total us a step, whether)}.

    A block counts as exposed where no compute hides more than 1 % of its own time, and at least 20 us, in a step.
    """
    found = defaultdict(lambda: [0.0, 0.0])
    for row in blocks:
        if row["exposed_ms"] is not None:
            found[row["block"]][0] += 1e3 * row["exposed_ms"]
            found[row["block"]][1] += 1e3 * row["avg_ms"] * row["executions"] / (steps["steps"] * steps["ranks"])
    return {block: (bare, total, bare > 0.01 * total and bare >= 20.0) for block, (bare, total) in found.items()}


def notes(folder):
    """What a run's notes say of its cost: {"issue": us, "events": us, "clock": us}, those that are there."""
    text = "\n".join(json.loads((folder / "run.json").read_text())["notes"])
    known = {
        "issue": r"issuing took the host ([\d.]+) us a block",
        "clock": r"times of ranks agree within ([\d.]+) us",
        "events": r"timing a block costs ([\d.]+) us on the device",
    }
    found = {name: re.search(pattern, text) for name, pattern in known.items()}
    return {name: float(match[1]) for name, match in found.items() if match}


def libraries(folder):
    """Versions of the libraries that a run used, in one line."""
    used = json.loads((folder / "run.json").read_text())["environment"].get("libraries", {})
    return ", ".join(f"{name} {version}" for name, version in used.items())


def conformance(output):
    """Output of the conformance suite as {back end: (passed, skipped)} and its failures."""
    counts = re.findall(r"(\w+): (\d+) cases passed, (\d+) skipped", output)
    failures = re.findall(r"^(\w+: .*Failed\(.*)$", output, re.M)
    return {name: (int(passed), int(skipped)) for name, passed, skipped in counts}, failures


def sanitizer(output):
    """Errors that compute-sanitizer counted, or None where it did not come to its end."""
    races = re.findall(r"RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\)", output)
    if races:
        return sum(int(errors) + int(warnings) for errors, warnings in races)
    errors = re.findall(r"ERROR SUMMARY: (\d+) errors?", output)
    return sum(map(int, errors)) if errors else None
