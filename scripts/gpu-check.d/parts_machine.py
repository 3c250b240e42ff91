"""What the machine offers, whether all data is right on it, and whether any memory is touched that must not be."""

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import data
from check import PATTERNS, Trouble, cuda_homes

# Cases of the conformance suite for the memory checkers, which make each of them take a minute.
CHECKED = ["nccl: groups, 1", "nccl: groups, 2", "nccl: long buffers, 2", "nccl: a chain of lone sends and recvs, 2"]
TOOLS = ["memcheck", "racecheck"]

# Errors that CUDA returns and the caller deals with are none of a memory checker's: NCCL provokes some on purpose, such
# as by asking for peer access twice.
NO_API_ERRORS = ["--report-api-errors", "no"]
# Under memcheck NCCL 2.28 does not come to its end on two GPUs with its own memory allocator.
NO_CUMEM = {"NCCL_CUMEM_ENABLE": "0"}


def doctor(context, part):
    """What Maestro finds here."""
    output = context.maestro("doctor").output
    print(output)
    devices = [line.strip() for line in output.splitlines() if line.strip()[:1].isdigit() and "SMs" in line]
    found = [" ".join(line.split()) for line in output.splitlines() if line.strip().startswith("NCCL ")]
    context.opening.append("GPUs: " + "; ".join(devices) + ".")
    context.results.add(part, "doctor", "two GPUs and NCCL", f"{len(devices)} GPUs; {'; '.join(found) or 'no NCCL'}",
                        len(devices) >= 2 and bool(found))


def suite(context):
    """The file of the conformance suite."""
    if not context.conformance or not os.access(context.conformance, os.X_OK):
        raise Trouble("the conformance suite is not there or cannot be run; --conformance names it")
    return context.conformance


def conformance(context, part):
    """The suite on all GPUs, then on one."""
    first = (context.env.get("CUDA_VISIBLE_DEVICES") or "0").split(",")[0]
    for what, env in (("all GPUs", {}), ("one GPU", {"CUDA_VISIBLE_DEVICES": first, "MAESTRO_CONFORMANCE": "nccl: "})):
        done = context.run([suite(context), "--nocapture", "--test-threads=1"], env=env)
        counts, failures = data.conformance(done.output)
        said = [f"{name}: {passed} passed, {skipped} skipped" for name, (passed, skipped) in counts.items()]
        said += [f"{len(failures)} failed, the first {failures[0][:160]}"] if failures else []
        said += [done.why()] if done.status != 0 and not failures else []
        holds = done.status == 0 and not failures and counts.get("nccl", (0, 0))[0] > 0
        context.results.add(part, f"conformance, {what}", "passes", "; ".join(said) or "nothing printed", holds)


def torchrun(context, part):
    """One process a GPU, started by torchrun."""
    folder = context.work / "torchrun"
    context.must([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--no-python",
                  context.maestro_file, "replay", PATTERNS / "allgather_reducescatter.yaml", "--backend", "nccl",
                  "-o", folder])
    parts = len(list(folder.glob("part-*.parquet")))
    ranks = {row["rank"] for row in data.executions(folder)}
    context.results.add(part, "torchrun, a process a GPU", "runs", f"{parts} processes, {len(ranks)} ranks, step"
                        f" {context.step_ms(folder):.3f} ms", parts == 2 and len(ranks) == 2)


def compute_sanitizer():
    """CUDA's memory checker, wherever CUDA is."""
    found = shutil.which("compute-sanitizer") or next((
        file for home in cuda_homes() for file in (f"{home}/bin/compute-sanitizer",
                                                   f"{home}/compute-sanitizer/compute-sanitizer")
        if os.access(file, os.X_OK)), None)
    if not found:
        raise Trouble("compute-sanitizer is not on the PATH, nor in CUDA's folders")
    return found


def sanitizer(context, part):
    """Memcheck and racecheck: a little of everything, and cases of the conformance suite. Nothing is timed here and each
    run mostly prepares kernels on the host, so all are run at once."""
    checker = [compute_sanitizer(), *NO_API_ERRORS]
    small = ["--iterations", "1", "--rounds", "1", "--watchdog", "150"]
    runs = []
    for tool in TOOLS:
        folder = context.work / f"small-{tool}"
        replay = [context.maestro_file, "replay", PATTERNS / "gpu_small.yaml", "--backend", "nccl", "-o", folder, *small]
        runs.append((f"{tool}, {PATTERNS.name}/gpu_small.yaml", [*checker, "--tool", tool, *replay], {}))
        suite_of = [*checker, "--tool", tool, suite(context), "--nocapture", "--test-threads=1"]
        runs += [(f"{tool}, {case}", suite_of, {"MAESTRO_CONFORMANCE": case}) for case in CHECKED]
    with ThreadPoolExecutor(len(runs)) as pool:
        ends = list(pool.map(lambda run: context.run(run[1], env={**run[2], **NO_CUMEM}), runs))
    for (what, _, _), done in zip(runs, ends):
        errors = data.sanitizer(done.output)
        if "Device not supported" in done.output:
            context.results.add(part, what, "clean", "not run: the checker does not support this device", False)
            continue
        ended = done.status == 0 and errors is not None
        said = f"{errors} errors" if errors is not None else "no summary"
        context.results.add(part, what, "clean", f"{said}, {done.seconds:.0f} s" if ended else f"{said}; {done.why()}",
                            ended and errors == 0)
