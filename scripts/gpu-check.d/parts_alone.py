"""Collectives by themselves, against nccl-tests on the machine of the baseline and against PyTorch here and there."""

import sys
from pathlib import Path

import data
from check import PATTERNS, RECIPE, Trouble, median, number, percent, size_name

HERE = Path(__file__).resolve().parent
LARGE = 16 << 20
LARGE_PERCENT, SMALL_US, SINGLE_US = 4.0, 3.0, 5.0
EXECUTIONS = 20


def against_nccl_tests(context, part):
    """Executions back to back and single ones beside nccl-tests', with PyTorch's as a witness of the machine."""
    wanted = data.nccl_tests(data.baseline("nccl_tests_2xh200.txt"))
    together = measured(context, part, "nccl-tests-back-to-back", "--back-to-back", EXECUTIONS)
    single = measured(context, part, "nccl-tests-single")
    here, there = (witness(context, part, RECIPE / "collectives.py"),
                   data.pytorch_collectives(data.baseline("pytorch_collectives_2xh200.jsonl")))
    beside = witness(context, part, HERE / "back_to_back.py")
    judge_together(context, part, together, wanted)
    judge_beside(context, part, together, beside)
    judge_single(context, part, single, wanted)
    judge_witness(context, part, here, there)
    context.results.detail("Alone, against nccl-tests (us)", [
        "operation", "size", "nccl-tests", "back to back", "more by", "more by (%)", "single", "more by",
        "PyTorch back to back, here", "PyTorch single, here", "PyTorch single, baseline"], [
        line(key, wanted, together, single, beside, here, there) for key in wanted])


def measured(context, part, name, *words):
    """Median time of each collective alone, in us; empty where it could not be measured."""
    try:
        folder = context.replay(PATTERNS / "nccl_tests.yaml", name, "--no-verify", *words)
    except Trouble as trouble:
        context.results.add(part, name, "runs", f"did not run: {trouble}", False)
        return {}
    context.opening.append(f"Libraries of {name}: {data.libraries(folder)}.")
    alone = data.medians_us(data.executions(folder), "alone", "transfer")
    return {data.block_size(block): us for block, us in alone.items()}


def witness(context, part, script):
    """PyTorch's own times here by a script, in us."""
    done = context.run([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", script], limit=40)
    if done.status != 0:
        context.results.add(part, f"PyTorch's collectives here, {script.name}", "-", f"did not run: {done.why()}")
    return data.pytorch_collectives(done.output)


def allowed(key, wanted):
    """How many us more or less than nccl-tests an execution among others may take."""
    return wanted[key] * LARGE_PERCENT / 100 if key[1] >= LARGE else SMALL_US


def shared(found, wanted):
    """What both have, in the order of the baseline."""
    return [key for key in wanted if key in found]


def name(key):
    return f"{key[0]} {size_name(key[1])}"


def judge_together(context, part, together, wanted):
    for title, bar, unit, keep in (
        ("back to back, from 16 MiB", f"within {LARGE_PERCENT:.0f} %", "%", lambda size: size >= LARGE),
        ("back to back, below 16 MiB", f"within {SMALL_US:.0f} us", "us", lambda size: size < LARGE),
    ):
        keys = [key for key in shared(together, wanted) if keep(key[1])]
        if not keys:
            continue
        off = {key: percent(together[key], wanted[key]) if unit == "%" else together[key] - wanted[key] for key in keys}
        within = [key for key in keys if abs(together[key] - wanted[key]) <= allowed(key, wanted)]
        worst = max(keys, key=lambda key: abs(off[key]))
        said = f"{len(within)} of {len(keys)} within; farthest {name(worst)} {off[worst]:+.1f} {unit}"
        said += f"; median {median(off.values()):+.1f} {unit}"
        context.results.add(part, title, bar, said, len(within) == len(keys))


def judge_beside(context, part, together, beside):
    """Back to back beside PyTorch's by the same method in the same call: what is the machine's shows in both."""
    off = {key: percent(together[key], beside[key]) for key in shared(together, beside)}
    if off:
        worst = max(off, key=lambda key: abs(off[key]))
        context.results.add(part, "back to back against PyTorch's back to back here, from 16 MiB", "-",
                            f"farthest {name(worst)} {off[worst]:+.1f} %; median {median(off.values()):+.1f} %")


def judge_single(context, part, single, wanted):
    keys = shared(single, wanted)
    if not keys:
        return
    more = {key: single[key] - wanted[key] for key in keys}
    within = [key for key in keys if more[key] <= SINGLE_US]
    # What a large one may take more among others, it may take more by itself, too.
    scaled = [key for key in keys if more[key] <= SINGLE_US + (allowed(key, wanted) if key[1] >= LARGE else 0)]
    worst = max(keys, key=lambda key: more[key])
    said = f"{len(within)} of {len(keys)} within; farthest {name(worst)} {more[worst]:+.1f} us"
    said += f"; median {median(more.values()):+.1f} us"
    said += f"; {len(scaled)} of {len(keys)} if those from 16 MiB may differ by {LARGE_PERCENT:.0f} % as well"
    context.results.add(part, "an execution by itself", f"at most {SINGLE_US:.0f} us more", said,
                        len(within) == len(keys))


def judge_witness(context, part, here, there):
    """How much faster or slower than the baseline's this machine is, by the same PyTorch script on both."""
    keys = shared(here, there)
    for title, keep in (("from 16 MiB", lambda size: size >= LARGE), ("below 16 MiB", lambda size: size < LARGE)):
        off = [percent(here[key], there[key]) for key in keys if keep(key[1])]
        if off:
            context.results.add(part, f"PyTorch's collectives here against the baseline's, {title}", "-",
                                f"{min(off):+.1f} to {max(off):+.1f} %, median {median(off):+.1f} %")


def line(key, wanted, together, single, beside, here, there):
    """A row of the table of figures."""
    ours, alone = together.get(key), single.get(key)
    return [key[0], size_name(key[1]), number(wanted[key]), number(ours),
            number(ours and ours - wanted[key], sign=True), number(ours and percent(ours, wanted[key]), 1, True),
            number(alone), number(alone and alone - wanted[key], sign=True), number(beside.get(key)),
            number(here.get(key)), number(there.get(key))]
