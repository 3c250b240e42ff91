"""Single blocks whose cost is known beforehand, pairs of collectives at once, and the cost of an issue."""

import data
from check import PATTERNS, Trouble, number, size_name

HOLD_US = 1.0
MEMORY_SHARE = 85.0
ISSUE_US = 6.0
GIB = 1 << 30
# Blocks of gpu_units.yaml.
HOLDS = {"hold_10us": 10.0, "hold_100us": 100.0, "hold_1ms": 1000.0,
         "hold_10us_1sm": 10.0, "hold_100us_1sm": 100.0, "hold_1ms_1sm": 1000.0}
EMPTY = "hold_0us"
COPY = "copy_d2d_1GiB"
# Bytes that a block moves: those read and those written.
MOVED = {"memory_1GiB": GIB, "memory_8GiB": 8 * GIB, COPY: 2 * GIB, "copy_h2d_256MiB": GIB // 4,
         "copy_d2h_256MiB": GIB // 4}
PRODUCTS = {"gemm_bf16": 2 * 8192**3, "gemm_f16": 2 * 8192**3}


def units(context, part):
    """Holds, memory traffic, copies and products by themselves."""
    folder = context.replay(PATTERNS / "gpu_units.yaml", "units", "--iterations", "10")
    rows = data.executions(folder)
    alone, inside = (data.medians_us(rows, state, "latency") for state in ("alone", "overlapped"))
    missing = [block for block in [*HOLDS, EMPTY, *MOVED, *PRODUCTS] if block not in alone]
    if missing:
        raise Trouble(f"no figures of {', '.join(missing)} alone")
    judge_holds(context, part, alone)
    judge_memory(context, part, alone)
    for block, flops in PRODUCTS.items():
        context.results.add(part, f"{block}, 8192 x 8192 x 8192", "-", f"{flops / alone[block] / 1e6:.0f} TFLOP/s")
    context.results.detail("Units (us)", ["block", "alone", "in the step", "GB/s or TFLOP/s alone"], [
        [block, number(alone[block]), number(inside.get(block)), rate(block, alone[block])]
        for block in [EMPTY, "set_4B", *HOLDS, *MOVED, *PRODUCTS] if block in alone])


def judge_holds(context, part, alone):
    """A hold is right within 1 us, once what launching a kernel costs is taken off."""
    launch = alone[EMPTY]
    context.results.add(part, "launch of a block that does nothing", "-", f"{launch:.2f} us on the device")
    over = {block: alone[block] - wanted - launch for block, wanted in HOLDS.items()}
    worst = max(over, key=lambda block: abs(over[block]))
    context.results.add(part, "holds, launch taken off", f"within {HOLD_US:.0f} us",
                        f"{min(over.values()):+.2f} to {max(over.values()):+.2f} us; farthest {worst}",
                        abs(over[worst]) <= HOLD_US)


def judge_memory(context, part, alone):
    copy = MOVED[COPY] / alone[COPY]
    for block in ("memory_1GiB", "memory_8GiB"):
        share = 100 * MOVED[block] / alone[block] / copy
        context.results.add(part, f"{block} against a copy inside the device", f"at least {MEMORY_SHARE:.0f} %",
                            f"{share:.0f} % ({MOVED[block] / alone[block] / 1e3:.0f} of {copy / 1e3:.0f} GB/s)",
                            share >= MEMORY_SHARE)


def rate(block, us):
    if block in MOVED:
        return f"{MOVED[block] / us / 1e3:.0f} GB/s"
    return f"{PRODUCTS[block] / us / 1e6:.0f} TFLOP/s" if block in PRODUCTS else "-"


def overlap(context, part):
    """All-gather and reduce-scatter at once, size by size."""
    folder = context.replay(PATTERNS / "allgather_reducescatter.yaml", "overlap", "--iterations", "20")
    rows = data.executions(folder)
    alone, together = (data.medians_us(rows, state, "transfer") for state in ("alone", "overlapped"))
    lines = [pair(size, alone, together) for size in sorted(data.block_size(block)[1] for block in alone
                                                            if block.startswith("gather_"))]
    wanted = {size_name(mib << 20) for mib in (4, 8, 16, 32, 64, 128, 256)}
    there = {line[0] for line in lines if "-" not in line}
    factors = [float(line[-1].rstrip("x")) for line in lines if line[-1] != "-"]
    said = f"{len(there & wanted)} of {len(wanted)} sizes"
    if factors:
        said += f"; both at once {min(factors):.2f} to {max(factors):.2f} times as fast as one after the other"
    context.results.add(part, "all-gather and reduce-scatter at once, 4 to 256 MiB", "each alone and together", said,
                        wanted <= there)
    context.results.detail("All-gather and reduce-scatter, alone and at once (us)", [
        "size", "all-gather alone", "together", "slowdown", "reduce-scatter alone", "together", "slowdown",
        "gain over one after the other"], lines)


def pair(size, alone, together):
    """One size: each block alone and beside the other. The gain is both alone, added, over the longer one together."""
    of = {name: next((block for block in alone if data.block_size(block) == (name, size)), None)
          for name in ("gather", "scatter")}
    cells = [size_name(size)]
    for block in of.values():
        one, two = alone.get(block), together.get(block)
        cells += [number(one), number(two), f"{two / one:.2f}x" if one and two else "-"]
    both = [together.get(block) for block in of.values()]
    complete = all(both) and all(alone.get(block) for block in of.values())
    return cells + [f"{sum(alone[block] for block in of.values()) / max(both):.2f}x" if complete else "-"]


def overhead(context, part):
    """What an issue costs the host, and what timing it costs the device."""
    pattern = PATTERNS / "empty_blocks.yaml"
    folder = context.replay(pattern, "empty", "--iterations", "10", "--no-alone", "--no-verify")
    cost = data.notes(folder)
    if "issue" not in cost:
        raise Trouble("the run says nothing of what issuing cost")
    context.results.add(part, "host cost an issue, 1,000 empty blocks", f"at most {ISSUE_US:.0f} us",
                        f"{cost['issue']:.1f} us", cost["issue"] <= ISSUE_US)
    if "events" in cost:
        context.results.add(part, "events of a block on the device", "-", f"{cost['events']:.2f} us")
    if "clock" in cost:
        context.results.add(part, "times of ranks agree", "-", f"within {cost['clock']:.1f} us")
    context.results.add(part, "step of 1,000 empty blocks", "-", f"{context.step_ms(folder):.2f} ms")
