"""Runs all parts of the check, one after the other, and writes the table. `scripts/gpu-check` says how to call it."""

import argparse
import importlib.util
import os
import shutil
import sys
import tarfile
import tempfile
import time
import traceback
from pathlib import Path

import parts_alone
import parts_fidelity
import parts_machine
import parts_meshes
import parts_units
from check import REPOSITORY, Context, Trouble

# Each part: its letter, what it is about, the seconds it may take, the function. Those whose figures matter most come
# first: when the time of the whole check is up, the rest is not run and the table says so. NO_BARS have none to miss.
PARTS = [
    ("a", "what works on this machine", 20, parts_machine.doctor),
    ("c", "alone against nccl-tests", 75, parts_alone.against_nccl_tests),
    ("d", "fidelity of recorded steps", 145, parts_fidelity.recorded),
    ("t", "fidelity of a tensor-parallel step made here", 86, parts_fidelity.trained_here),
    ("f", "compute, copies, holds", 30, parts_units.units),
    ("g", "slowdown by overlap", 25, parts_units.overlap),
    ("h", "overhead", 20, parts_units.overhead),
    ("i", "step as a CUDA graph", 20, parts_fidelity.graph),
    ("b", "conformance", 90, parts_machine.conformance),
    ("k", "a process a GPU by torchrun", 30, parts_machine.torchrun),
    ("j", "memory checker", 170, parts_machine.sanitizer),
    ("m", "two axes on eight GPUs", 420, parts_meshes.meshes),
    ("w", "second witness: training here", 75, parts_fidelity.witnesses),
]
NO_BARS = "w"


def arguments():
    parser = argparse.ArgumentParser(prog="gpu-check", description="Checks Maestro on this machine's GPUs.")
    parser.add_argument("out", type=Path, help="folder for the results")
    parser.add_argument("--maestro", type=Path, default=REPOSITORY / "target/release/maestro", help="the program")
    parser.add_argument("--conformance", type=Path, help="the conformance suite [default: the newest that was built]")
    parser.add_argument("--quick", action="store_true", help="leave out training as a second witness")
    parser.add_argument("--only", default="", help="letters of the parts to run: " + ", ".join(
        f"{letter} {title}" for letter, title, _, _ in PARTS))
    parser.add_argument("--limit", type=float, default=465, help="seconds for everything [default: %(default)s]")
    return parser.parse_args()


def newest_conformance():
    """The conformance suite that was built last in this checkout, or None."""
    found = [file for build in ("release", "debug") for file in (REPOSITORY / "target" / build / "deps").glob(
        "conformance-*") if not file.suffix and os.access(file, os.X_OK)]
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


def nccl_of_pytorch():
    """The folder of the NCCL that PyTorch loads, or None where it is the system's."""
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return None
    folders = [Path(place) / "lib" for place in (spec.submodule_search_locations if spec else [])]
    return next((folder for folder in folders if list(folder.glob("libnccl.so*"))), None)


def use_nccl_of_pytorch(context):
    """Makes Maestro load the NCCL that PyTorch's figures come from."""
    folder = nccl_of_pytorch()
    if folder:
        before = context.env.get("MAESTRO_LIBRARIES")
        context.env["MAESTRO_LIBRARIES"] = os.pathsep.join([str(folder)] + ([before] if before else []))
    return "NCCL of PyTorch's folder" if folder else "NCCL as the system has it (PyTorch brings none)"


def run_part(context, letter, title, limit, function):
    """Runs one part; whatever happens in it becomes a row."""
    missed = None if letter in NO_BARS else False
    began = time.monotonic()
    context.part_end = began + limit
    print(f"\n[{letter}] {title}", flush=True)
    if context.end - began < 3:
        context.results.add(letter, title, "runs", "not run: the time of the whole check was up", missed)
        return
    try:
        function(context, letter)
    except Trouble as trouble:
        context.results.add(letter, title, "runs", f"gave up: {trouble}", missed)
    except Exception as error:  # A mistake in one part must not take the others with it.
        traceback.print_exc()
        context.results.add(letter, title, "runs", f"gave up: {type(error).__name__}: {error}", missed)
    seconds = time.monotonic() - began
    context.results.seconds.append([f"{letter} {title}", f"{seconds:.0f}"])
    print(f"  ({seconds:.0f} s)", flush=True)


def keep_runs(context):
    """Packs the run folders, patterns and traces; the execution traces are large and nobody reads them."""
    with tarfile.open(context.out / "runs.tar.gz", "w:gz") as archive:
        archive.add(context.work, "runs", filter=lambda entry: None if "_et_rank" in entry.name else entry)


def main():
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    maestro = options.maestro.resolve()
    if not os.access(maestro, os.X_OK):
        sys.exit(f"gpu-check: {maestro} is not there or cannot be run; --maestro names the program")
    conformance = options.conformance or newest_conformance()
    work = Path(tempfile.mkdtemp(prefix="gpu-check-"))
    began = time.monotonic()
    context = Context(options.out.resolve(), work, maestro, conformance and conformance.resolve(), options.quick,
                      options.limit)
    context.opening = [use_nccl_of_pytorch(context) + "."]
    for part in PARTS:
        if not options.only or part[0] in options.only:
            run_part(context, *part)
            context.results.write(context.out, context.opening)
    context.results.seconds.append(["all", f"{time.monotonic() - began:.0f}"])
    context.results.write(context.out, context.opening)
    keep_runs(context)
    shutil.rmtree(work, ignore_errors=True)
    print("\n" + context.results.table())
    missed = sum(row.holds is False for row in context.results.rows)
    held = sum(row.holds is True for row in context.results.rows)
    print(f"\n{held} bars hold, {missed} are missed; {time.monotonic() - began:.0f} s."
          f" Figures: {options.out}/results.md")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
