"""When the collectives' kernels of a replay ran, by the ruler of the profilers that made the captures (CUPTI).

A replay's own times of a block begin when its lane reaches it, so they count the wait until the device has
multiprocessors free for its kernel. A profiler counts a kernel from its first thread block on.
"""

import importlib.util
import itertools
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import data
from check import Trouble, cuda_homes, median

SOURCE = Path(__file__).with_name("kernels.c")
# So far may ends by CUPTI lie from those by the replay's events.
STRAY_US = 100.0
# Assignments of streams to lanes that are tried.
MOST_WAYS = 1000
# NCCL does these by messages: their kernels are named for that, or for the operation.
BY_MESSAGES = ("p2p", "all_to_all", "gather", "scatter")


@dataclass(frozen=True)
class Kernel:
    """A kernel of a collective. `operation` is what NCCL's name of it says: AllReduce, SendRecv."""

    operation: str
    start: int
    end: int


@dataclass
class Ruled:
    """A replay by its kernels' times."""

    transfers: dict
    step_ms: float
    # How far the ends of kernels lie from the replay's own, and how much later all-reduces end on the second device.
    stray_us: float
    apart_us: float | None


def replay(context, pattern, name):
    """Replays the step of a pattern under CUPTI and gives its blocks' transfer times by their kernels."""
    recorder = library(context)
    file = context.work / f"{name}.csv"
    folder = context.replay(pattern, name, "--pacing", "gaps", "--no-alone", "--no-verify", "--rounds", "1", env={
        "CUDA_INJECTION64_PATH": str(recorder), "GPU_CHECK_KERNELS": str(file), "GPU_CHECK_KERNELS_OF": "nccl"})
    if not file.exists():
        raise Trouble("the driver did not load CUPTI's library")
    rows = [row for row in data.executions(folder) if row["axis"] is not None]
    kinds = {row["block"]: row["kind"] for row in context.report(folder)}
    pairs = pair(rows, kinds, context.shown(pattern)["lanes"], read(file.read_text()))
    stray_us = strays(pairs)
    if stray_us > STRAY_US:
        raise Trouble(f"kernels end {stray_us:.0f} us from where the blocks do, so they are not theirs")
    return Ruled(transfers(pairs), context.step_ms(folder), stray_us, apart(pairs, kinds))


def library(context):
    """The library that records kernels, compiled once a check. Another try would fail the same way."""
    if context.recorder is None:
        try:
            context.recorder = compiled(context)
        except Trouble as trouble:
            context.recorder = trouble
    if isinstance(context.recorder, Trouble):
        raise context.recorder
    return context.recorder


def compiled(context):
    """Compiles kernels.c against the first CUPTI found."""
    headers, file, others = cupti()
    record = newest_record((headers / "cupti_activity.h").read_text(errors="replace"))
    out = context.work / "kernels.so"
    # As system headers they may warn of what they like.
    includes = [word for folder in [headers, *others] for word in ("-isystem", folder)]
    context.must(["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-pthread", f"-DKERNEL={record}",
                  *includes, "-o", out, SOURCE, file, f"-Wl,-rpath,{file.parent}"], limit=20)
    return out


def newest_record(header):
    """The type of a kernel's record in a version of CUPTI: its main header declares the newest alone."""
    found = re.findall(r"\}\s*(CUpti_ActivityKernel(\d+))\s*;", header)
    if not found:
        raise Trouble("CUPTI's header declares no record of a kernel")
    return max(found, key=lambda name: int(name[1]))[0]


def cupti():
    """CUPTI's headers, its library, and the folders of CUDA's other headers."""
    places = []
    for home in map(Path, cuda_homes()):
        places.append((home / "extras/CUPTI/include", home / "extras/CUPTI/lib64"))
        places += [(target / "include", target / "lib") for target in sorted(home.glob("targets/*-linux"))]
        places.append((home / "include", home / "lib64"))
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ModuleNotFoundError, ValueError):
        spec = None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        places += [(part / "include", part / "lib") for part in sorted(Path(folder).glob("*")) if part.is_dir()]
    others = [headers for headers, _ in places if headers.is_dir()]
    for headers, libraries in places:
        files = sorted(libraries.glob("libcupti.so*"), key=lambda file: len(file.name))
        if files and (headers / "cupti_activity.h").exists():
            return headers, files[0], others
    raise Trouble("CUPTI's headers and library are not in CUDA's folders, nor in Python's")


def read(text):
    """The recorded kernels of collectives: {device: {stream: [Kernel, in order]}}."""
    lines = text.splitlines()
    remarks = [line[2:] for line in lines if line.startswith("# ")]
    if remarks != ["end"]:
        raise Trouble(f"CUPTI: {remarks[0] if remarks and remarks[0] != 'end' else 'the record has no end'}")
    found = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line.startswith("#"):
            continue
        device, stream, start, end, name = line.split(",", 4)
        # Names may be mangled: _Z25ncclDevKernel_SendRecv24nccl...
        if operation := re.search(r"nccl[A-Za-z]*Kernel_([A-Za-z]+)", name):
            found[int(device)][int(stream)].append(Kernel(operation[1], int(start), int(end)))
    return {device: {stream: sorted(kernels, key=lambda kernel: kernel.start) for stream, kernels in streams.items()}
            for device, streams in found.items()}


def fits(operation, kind):
    """Whether a kernel of an operation can be a block's of a kind."""
    operation = operation.lower()
    if kind == "group":
        return True
    if kind in BY_MESSAGES and operation == "sendrecv":
        return True
    return operation == {"barrier": "allreduce"}.get(kind, kind.replace("_", ""))


def pair(rows, kinds, order, kernels):
    """Each recorded execution with its kernel. `order` is that of the pattern's lanes.

    A lane is a stream, and both go one by one: executions and kernels stand in the same order on it. The last kernels
    of a stream are those of the recorded iterations; before them come rehearsal and warm-up.
    """
    of_rank = defaultdict(lambda: defaultdict(list))
    # On one lane the order of ends is the order of execution.
    for row in sorted(rows, key=lambda row: (row["round"], row["iteration"], row["end_ns"])):
        of_rank[row["rank"]][row["lane"]].append(row)
    if len(of_rank) != len(kernels):
        raise Trouble(f"{len(kernels)} devices ran kernels of collectives, for {len(of_rank)} ranks")
    pairs = []
    for (rank, by_lane), (_, streams) in zip(sorted(of_rank.items()), sorted(kernels.items())):
        used = [lane for lane in order if lane in by_lane]
        if len(used) != len(streams):
            raise Trouble(f"rank {rank} communicates on {len(used)} lanes, and on {len(streams)} streams")
        # Streams are made, and as a rule numbered, in the order of the lanes: that comes first.
        ways = itertools.permutations(ran for _, ran in sorted(streams.items()))
        for way in itertools.islice(ways, MOST_WAYS):
            if all(belong(ran, by_lane[lane], kinds) for lane, ran in zip(used, way)):
                break
        else:
            raise Trouble(f"rank {rank} did not run one kernel for each execution on lane {' and '.join(used)}")
        for lane, ran in zip(used, way):
            pairs += zip(by_lane[lane], ran[-len(by_lane[lane]):])
    return pairs


def belong(ran, executions, kinds):
    """Whether the last kernels of a stream can be those of a lane's executions."""
    recorded = ran[-len(executions):]
    return len(recorded) == len(executions) and all(
        fits(kernel.operation, kinds[row["block"]]) for row, kernel in zip(executions, recorded))


def meetings(pairs):
    """Executions that wait for each other: the members of a meeting have one moment at which the last arrived."""
    found = defaultdict(list)
    for row, kernel in pairs:
        if row["wait_ns"] is not None:
            found[row["round"], row["iteration"], row["axis"], row["lane"], row["start_ns"] + row["wait_ns"]].append(
                (row, kernel))
    return found.values()


def transfers(pairs):
    """Median over a block's executions of the time from when the kernels of all its members ran, in us."""
    found = defaultdict(list)
    for members in meetings(pairs):
        together = max(kernel.start for _, kernel in members)
        for row, kernel in members:
            found[row["block"]].append((kernel.end - together) / 1e3)
    return {block: median(values) for block, values in found.items()}


def strays(pairs):
    """How far kernels end from where their executions do, in us: the median of the rank and lane where it is largest.

    The two clocks are a constant apart, which is taken off for each iteration of a rank.
    """
    ends = defaultdict(list)
    for row, kernel in pairs:
        ends[row["rank"], row["round"], row["iteration"]].append((row["lane"], kernel.end - row["end_ns"]))
    found = defaultdict(list)
    for (rank, *_), values in ends.items():
        center = median(value for _, value in values)
        for lane, value in values:
            found[rank, lane].append(abs(value - center) / 1e3)
    return max((median(values) for values in found.values()), default=0.0)


def apart(pairs, kinds):
    """How much later collectives end on the second of two devices than on the first, in us (median).

    All ranks of an all-reduce end at once, so this says how well the clocks of the devices agree.
    """
    later = []
    for members in meetings(pairs):
        if len(members) == 2 and all(kinds[row["block"]] == "all_reduce" for row, _ in members):
            first, second = (kernel for _, kernel in sorted(members, key=lambda member: member[0]["rank"]))
            later.append((second.end - first.end) / 1e3)
    return median(later)
