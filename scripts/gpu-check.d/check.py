"""What every part of the check works with: running programs within a time limit, and collecting what was found."""

import json
import os
import signal
import statistics
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / "fixtures"
PATTERNS = FIXTURES / "patterns"
BASELINE = FIXTURES / "captures" / "baseline"
RECIPE = FIXTURES / "captures" / "recipe"


class Trouble(Exception):
    """Something that a part cannot go on without did not work."""


@dataclass
class Row:
    """One line of the table. `holds` is None where there is no bar: the figure is there to be known."""

    part: str
    what: str
    bar: str
    measured: str
    holds: bool | None = None

    def verdict(self):
        return {True: "holds", False: "**missed**", None: "-"}[self.holds]


@dataclass
class Detail:
    """A table of the figures behind some rows."""

    title: str
    header: list
    rows: list


@dataclass
class Results:
    """Everything found so far."""

    rows: list = field(default_factory=list)
    details: list = field(default_factory=list)
    seconds: list = field(default_factory=list)

    def add(self, part, what, bar, measured, holds=None):
        self.rows.append(Row(part, what, bar, measured, holds))
        print(f"  {what}: {measured}" + (f" [{bar}: {self.rows[-1].verdict()}]" if holds is not None else ""))

    def detail(self, title, header, rows):
        self.details.append(Detail(title, header, rows))

    def table(self):
        header = ["part", "what", "bar", "measured", "holds / missed"]
        return table(header, [[r.part, r.what, r.bar, r.measured, r.verdict()] for r in self.rows])

    def markdown(self, opening):
        parts = ["# Check on GPUs", *opening, self.table(), "## Time", table(["part", "seconds"], self.seconds)]
        for detail in self.details:
            parts += [f"## {detail.title}", table(detail.header, detail.rows)]
        return "\n\n".join(parts) + "\n"

    def write(self, folder, opening):
        """Writes both files, so that a check that is cut short leaves what it had."""
        (folder / "results.md").write_text(self.markdown(opening))
        (folder / "results.json").write_text(json.dumps(asdict(self), indent=1) + "\n")


@dataclass
class Done:
    """A program that ended: what it printed, and its exit status (None where the time was up)."""

    status: int | None
    output: str
    seconds: float

    def why(self):
        """The last line of the output with something in it, or that the time was up."""
        if self.status is None and self.seconds == 0:
            return "not begun: the time was up"
        if self.status is None:
            return f"no end after {self.seconds:.0f} s"
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return f"exit {self.status}: " + (lines[-1][:200] if lines else "no output")


class Context:
    """The settings of the check, its clock and its results."""

    def __init__(self, out, work, maestro, conformance, quick, limit):
        self.out, self.work, self.quick = out, work, quick
        self.maestro_file, self.conformance = maestro, conformance
        self.end = time.monotonic() + limit
        self.part_end = self.end
        self.results = Results()
        self.env = dict(os.environ)
        self.log = (out / "log.txt").open("w")
        self.imported = {}
        # The library that records kernels, once it was compiled, or why there is none.
        self.recorder = None

    def left(self):
        """Seconds that the part at work has left."""
        return min(self.end, self.part_end) - time.monotonic()

    def run(self, command, limit=None, env=None):
        """Runs a program; kills it and all its children when its time is up."""
        command = [str(word) for word in command]
        seconds = min(self.left(), limit or self.left())
        if seconds < 1:
            return Done(None, "", 0.0)
        began = time.monotonic()
        child = subprocess.Popen(command, cwd=self.work, env={**self.env, **(env or {})}, text=True, errors="replace",
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output, _ = child.communicate(timeout=seconds)
            status = child.returncode
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, _ = child.communicate()
            status = None
        done = Done(status, output, time.monotonic() - began)
        self.log.write(f"\n=== {' '.join(command)}\n{output}=== status {status}, {done.seconds:.1f} s\n")
        self.log.flush()
        return done

    def must(self, command, **how):
        """Runs a program that has to succeed."""
        done = self.run(command, **how)
        if done.status != 0:
            name = " ".join(Path(str(word)).name for word in command[:3])
            raise Trouble(f"`{name}`: {done.why()}")
        return done

    def maestro(self, *words, **how):
        return self.must([self.maestro_file, *words], **how)

    def replay(self, pattern, name, *words, backend="nccl", env=None):
        """Replays a pattern into the run folder `name` and gives the folder."""
        folder = self.work / name
        self.maestro("replay", pattern, "--backend", backend, "-o", folder, *words, env=env)
        return folder

    def shown(self, pattern):
        """What `maestro show` says of a pattern."""
        return json.loads(self.maestro("show", pattern, "--json").output)

    def report(self, folder, which="blocks"):
        """The rows of a table of a run."""
        return json.loads(self.maestro("report", folder, "--table", which, "--json").output)

    def step_ms(self, folder):
        """Median step of a run, in ms."""
        return self.report(folder, "steps")[0]["step_median_ms"]


def cuda_homes():
    """Folders in which CUDA may be, those that the environment names first."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    homes += sorted(map(str, Path("/usr/local").glob("cuda-*")), reverse=True)
    return [home for home in homes if home]


# Columns wider than this are not padded: a page of them would be mostly blanks.
WIDEST = 48


def table(header, rows):
    """A Markdown table whose columns, but for the widest, also line up as plain text."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    widths = [width if width <= WIDEST else len(header[column]) for column, width in enumerate(widths)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def median(values):
    """Median of the values that are there, or None."""
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def percent(measured, wanted):
    """How much more than wanted, in %."""
    return 100.0 * (measured / wanted - 1.0)


def number(value, digits=2, sign=False):
    """A figure for a table; `-` for one that is not there."""
    return "-" if value is None else f"{value:{'+' if sign else ''},.{digits}f}"


def size_name(size):
    """Bytes with a binary prefix."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"
