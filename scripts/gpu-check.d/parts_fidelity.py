"""Replays of imported steps beside the steps themselves: their length, their collectives, their compute."""

import sys
from dataclasses import dataclass

import data
import kernels
from check import FIXTURES, RECIPE, Trouble, number, percent

KINETO = FIXTURES / "captures" / "kineto"
COLLECTIVE_PERCENT = 10.0
# An execution timed by itself carries the cost of its events, which 10 % of a short one does not hold.
COLLECTIVE_US = 5.0
GEMM_PERCENT = 5.0
# Products are the larger part of a block where they alone would take half of its time at this rate (H200, bf16).
GEMM_FLOPS, GEMM_SHARE = 750e12, 0.5


@dataclass
class Workload:
    """A captured step, and how near its replay must come to the step without a profiler."""

    name: str
    bar: float
    # How much of the profiled host time to keep, where profiling made the host the limit (`import --host`).
    host: str = "captured"
    # Other shares of it whose steps are shown beside, without a bar.
    beside: tuple = ()
    # How near the transfers of its collectives must come, in percent.
    transfers: float = COLLECTIVE_PERCENT


# As much of the profiled host time as makes the step as long as it was without the profiler.
UNPROFILED = "step"
# The profiled step of ddp_large is no longer than the unprofiled one. Under the profiler the last two wait for their
# hosts most of the time.
RECORDED = [Workload("ddp_large", 3), Workload("fsdp_large", 3, UNPROFILED, ("captured",)),
            Workload("pp_large", 5, UNPROFILED, ("captured",)), Workload("moe", 8, UNPROFILED, ("none",))]
TENSOR_PARALLEL = Workload("tp_large", 8, UNPROFILED, ("none",))


def recorded(context, part):
    """The captures of the fixtures, against the unprofiled steps recorded with them."""
    unprofiled = data.unprofiled_steps(data.baseline("unprofiled_steps.jsonl"))
    for workload in RECORDED:
        try:
            compare(context, part, workload, [KINETO / workload.name], unprofiled[workload.name], "the recorded one")
        except Trouble as trouble:
            context.results.add(part, f"{workload.name}", "runs", f"gave up: {trouble}", False)


def trained_here(context, part):
    """A tensor-parallel step, captured here and compared with its unprofiled times of the same call."""
    folder = context.work / "train-tp"
    unprofiled = train(context, "tp", folder)["tp_large"]
    traces = sorted(folder.glob("tp_large_rank*.json.gz"))
    baseline = data.unprofiled_steps(data.baseline("unprofiled_steps.jsonl"))["tp_large"]
    context.results.add(part, "tp_large trained here, unprofiled", "-",
                        f"{unprofiled:.1f} ms; the baseline's machine {baseline:.1f} ms")
    compare(context, part, TENSOR_PARALLEL, traces, unprofiled, "the one trained here")


def witnesses(context, part):
    """Unprofiled steps on this machine beside those on the baseline's: how much the machines differ."""
    if context.quick:
        context.results.add(part, "training here", "-", "left out (--quick)")
        return
    there = data.unprofiled_steps(data.baseline("unprofiled_steps.jsonl"))
    for kind in ("ddp", "fsdp"):
        try:
            here = train(context, kind, context.work / f"train-{kind}", limit=38)[f"{kind}_large"]
        except Trouble as trouble:
            context.results.add(part, f"{kind}_large trained here", "-", f"did not run: {trouble}")
            continue
        was = there[f"{kind}_large"]
        context.results.add(part, f"{kind}_large trained here, unprofiled", "-",
                            f"{here:.1f} ms; the baseline's machine {was:.1f} ms, {percent(here, was):+.1f} %"
                            + replayed_beside(context, f"{kind}_large", here))


def replayed_beside(context, name, here):
    """The replayed step beside the one trained here, if it was replayed."""
    step = context.imported.get(name, {}).get("step_ms")
    return f"; the replay {step:.1f} ms, {percent(step, here):+.1f} % against the one here" if step else ""


def graph(context, part):
    """The step of fsdp_large as one CUDA graph: no host in it."""
    imported = context.imported.get("fsdp_large") or {}
    pattern = imported.get("pattern") or bring_in(context, Workload("fsdp_large", 3), [KINETO / "fsdp_large"])
    folder = context.replay(pattern, "fsdp_large-graph", "--graph", "--no-verify", "--no-alone")
    beside = f"; issued by the host {imported['step_ms']:.1f} ms" if imported.get("step_ms") else ""
    context.results.add(part, "fsdp_large as a CUDA graph", "-", f"{context.step_ms(folder):.1f} ms{beside}")


def train(context, kind, folder, limit=60, recipe=RECIPE / "train.py", ranks=2, sync=False):
    """Trains one workload of a recipe: its unprofiled steps; traces land in the folder."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={ranks}", recipe, kind, folder]
    env = {"LARGE": "1", **({"SYNC": "1"} if sync else {})}
    return data.unprofiled_steps(context.must(command, limit=limit, env=env).output)


def bring_in(context, workload, captures, host=None, name=None):
    """Imports a capture as a pattern, and its executions as a run."""
    host, name = host or workload.host, name or workload.name
    pattern, captured = context.work / f"{name}.yaml", context.work / f"{name}-captured"
    context.maestro("import", *captures, "--name", name, "--host", host, "-o", pattern, "--run", captured)
    return pattern


def compare(context, part, workload, captures, unprofiled, whose):
    """Imports, replays and compares one step."""
    name, host = workload.name, f"step={unprofiled:.3f}ms" if workload.host == UNPROFILED else workload.host
    try:
        pattern = bring_in(context, workload, captures, host)
    except Trouble as trouble:
        if workload.host != UNPROFILED:
            raise
        # Where the GPUs set the pace and the recorded step is the shorter one, no share of the host's time is right.
        context.results.add(part, f"host time of {name}", "-", f"as captured: {trouble}")
        host = "captured"
        pattern = bring_in(context, workload, captures, host)
    kept = context.imported.setdefault(name, {"pattern": pattern})
    gaps = context.replay(pattern, f"{name}-gaps")
    kept["step_ms"] = context.step_ms(gaps)
    step(context, part, f"{name}, gaps" + ("" if host == "captured" else f", host {host}"),
         kept["step_ms"], unprofiled, whose, workload.bar)
    ruled = by_kernels(context, part, name, pattern, kept["step_ms"])
    asap = context.replay(pattern, f"{name}-asap", "--no-alone", "--no-verify", "--pacing", "asap")
    step(context, part, f"{name}, asap", context.step_ms(asap), unprofiled, whose)
    for host in workload.beside:
        other = f"{name}-host-{host}"
        without = bring_in(context, workload, captures, host, other)
        folder = context.replay(without, f"{other}-gaps", "--no-alone", "--no-verify")
        step(context, part, f"{name}, gaps, host {host}", context.step_ms(folder), unprofiled, whose)
    dry = context.replay(pattern, f"{name}-dry", "--no-alone", backend="dry")
    collectives(context, workload, gaps, dry, ruled)
    products(context, workload, pattern, gaps, dry)


def step(context, part, what, measured, wanted, whose, bar=None):
    off = percent(measured, wanted)
    said = f"{measured:.1f} ms, {off:+.1f} % against {whose}, {wanted:.1f} ms"
    holds = abs(off) <= bar if bar else None
    context.results.add(part, f"step of {what}", f"within {bar} %" if bar else "-", said, holds)


def by_kernels(context, part, name, pattern, step_ms):
    """The step once more under CUPTI: its blocks' times by their kernels, or None where that does not work here."""
    what = f"kernels of collectives of {name} by CUPTI"
    try:
        ruled = kernels.replay(context, pattern, f"{name}-kernels")
    except Exception as error:  # Whatever it is must not take the bars with it, which then are on spans.
        kind = "" if isinstance(error, Trouble) else f"{type(error).__name__}: "
        context.results.add(part, what, "-", f"not to be had: {kind}{error}")
        return None
    said = f"step {ruled.step_ms:.1f} ms, {percent(ruled.step_ms, step_ms):+.1f} % against the one without CUPTI"
    said += f"; kernels end within {ruled.stray_us:.1f} us of their blocks"
    if ruled.apart_us is not None:
        said += f"; all-reduces end {ruled.apart_us:+.1f} us later on the second GPU (medians)"
    context.results.add(part, what, "-", said)
    return ruled


def collectives(context, workload, gaps, dry, ruled):
    """Transfer times and exposure of each collective, captured beside replayed."""
    name = workload.name
    captured_folder = context.work / f"{name}-captured"
    captured = data.medians_us(data.executions(captured_folder), "overlapped", "transfer")
    drawn = data.medians_us(data.executions(dry), "overlapped", "transfer")
    rows = data.executions(gaps)
    spans, alone = (data.medians_us(rows, state, "transfer") for state in ("overlapped", "alone"))
    bare = {side: data.exposed(context.report(folder), context.report(folder, "steps")[0])
            for side, folder in (("captured", captured_folder), ("dry", dry), ("replayed", gaps))}
    blocks = [block for block in bare["replayed"] if block in spans]
    ran = ruled.transfers if ruled else {}
    judge_transfers(context, workload, blocks, captured, ran if ruled else None, spans)
    judge_exposure(context, name, bare)
    context.results.detail(f"Collectives of {name} (us)", [
        "block", "transfer captured", "pattern (dry)", "replayed, by kernels", "against captured (%)",
        "with the wait for multiprocessors", "against captured (%)", "alone",
        "exposed captured", "exposed dry", "exposed replayed", "exposed: captured, dry, replayed"], [
        [block, number(captured.get(block)), number(drawn.get(block)),
         *against(ran.get(block), captured.get(block)), *against(spans[block], captured.get(block)),
         number(alone.get(block)), *(number(bare[side].get(block, [None])[0], 0) for side in bare),
         ", ".join("yes" if bare[side].get(block, (0, 0, False))[2] else "no" for side in bare)] for block in blocks])


def against(replayed, captured):
    """Two cells: the time, and how much more it is than the captured one."""
    return number(replayed), number(percent(replayed, captured) if replayed and captured else None, 1, True)


def judge_transfers(context, workload, blocks, captured, ran, spans):
    """The captured times are those of kernels, so the bar is on kernels, and on spans only where there are none.

    A span holds the wait until multiprocessors are free for the kernel; it is told beside, without a bar.
    """
    what, bar = f"transfer of collectives of {workload.name}", f"within {workload.transfers:.0f} %"
    if ran is None:
        said, holds = transfers_within(blocks, captured, spans, workload.transfers)
        context.results.add("e", what, bar, f"by spans, which hold the wait for multiprocessors: {said}", holds)
        return
    said, holds = transfers_within(blocks, captured, ran, workload.transfers)
    context.results.add("e", what, bar, f"by kernels: {said}", holds)
    said, _ = transfers_within(blocks, captured, spans, workload.transfers)
    context.results.add("e", f"{what}, with the wait for multiprocessors", "-", f"by spans: {said}")


def transfers_within(blocks, captured, replayed, bar=COLLECTIVE_PERCENT):
    """How many blocks are as near as the bar asks, in words, and whether all are."""
    compared = [block for block in blocks if captured.get(block)]
    off = {block: percent(replayed[block], captured[block]) for block in compared if block in replayed}
    if not off:
        return "none measured", False
    within = [block for block in off if abs(off[block]) <= bar]
    near = [block for block in off if block in within or abs(replayed[block] - captured[block]) <= COLLECTIVE_US]
    worst = max(off, key=lambda block: abs(off[block]))
    return (f"{len(within)} of {len(compared)} blocks within ({len(near)} with {COLLECTIVE_US:.0f} us more);"
            f" farthest {worst} {off[worst]:+.0f} %"), len(within) == len(compared)


def judge_exposure(context, name, bare):
    """The bar is on the dry run of the same pattern: the captured order and durations, and the host time in force."""
    sets = {side: {block for block, (_, _, is_bare) in found.items() if is_bare} for side, found in bare.items()}
    more, fewer = sorted(sets["replayed"] - sets["dry"]), sorted(sets["dry"] - sets["replayed"])
    said = [f"{len(sets['replayed'] & sets['dry'])} of {len(sets['dry'])} exposed on both sides"]
    said += [f"only replayed: {', '.join(more)}"] if more else []
    said += [f"only dry: {', '.join(fewer)}"] if fewer else []
    said += ["captured differs from dry"] if sets["captured"] != sets["dry"] else []
    context.results.add("e", f"exposed collectives of {name}", "the same", "; ".join(said), not more and not fewer)


def products(context, workload, pattern, gaps, dry):
    """Blocks that are mostly matrix products: replayed beside captured, and alone."""
    shown = context.shown(pattern)["blocks"]
    operations = {block["name"]: block["flops"] for block in shown if block.get("flops")}
    captured = data.medians_us(data.executions(dry), "overlapped", "latency")
    rows = data.executions(gaps)
    replayed, alone = (data.medians_us(rows, state, "latency") for state in ("overlapped", "alone"))
    share = {block: flops / GEMM_FLOPS / (captured[block] * 1e-6) for block, flops in operations.items()
             if captured.get(block) and block in replayed}
    blocks = [block for block in share if share[block] >= GEMM_SHARE]
    off = {block: percent(replayed[block], captured[block]) for block in blocks}
    if blocks:
        within = [block for block in blocks if abs(off[block]) <= GEMM_PERCENT]
        worst = max(blocks, key=lambda block: abs(off[block]))
        total = percent(sum(replayed[block] for block in blocks), sum(captured[block] for block in blocks))
        context.results.add("f", f"gemm blocks of {workload.name}", f"within {GEMM_PERCENT:.0f} %",
                            f"{len(within)} of {len(blocks)} within; farthest {worst} {off[worst]:+.1f} %; their sum"
                            f" {total:+.1f} %", len(within) == len(blocks))
    context.results.detail(f"Blocks with products of {workload.name} (us)", [
        "block", "products' share (%)", "captured", "replayed", "against captured (%)", "alone",
        "alone against captured (%)"], [
        [block, number(100 * share[block], 0), number(captured[block], 1), number(replayed[block], 1),
         number(percent(replayed[block], captured[block]), 1, True), number(alone.get(block), 1),
         number(alone.get(block) and percent(alone[block], captured[block]), 1, True)] for block in share])
