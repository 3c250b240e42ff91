"""Steps on two axes of eight GPUs, trained and captured here, replayed here, and refused where GPUs are missing."""

import sys
import tarfile

import parts_fidelity
from check import FIXTURES, Trouble
from parts_fidelity import UNPROFILED, Workload

TRAIN = FIXTURES / "recipes" / "train_mesh.py"
SCRUB = TRAIN.with_name("scrub.py")
# What is left out of the captures, so that all together stay small (scrub.py says what): never what the pattern is made
# of. Two steps tell an outlier; with stream waits one step is enough.
LEVEL, LEVEL_WITH_WAITS = 2, 3
RANKS = 8
# Each workload with the axes of its mesh.
MESHES = {"fsdp_tp": {"dp": 4, "tp": 2}, "pp_dp": {"pp": 2, "dp": 4}}
STEP_PERCENT, TRANSFER_PERCENT = 5, 15.0
MOST_BYTES = 4 << 20


def gpus(context):
    """How many GPUs Maestro finds."""
    lines = context.maestro("doctor").output.splitlines()
    return sum(line.strip()[:1].isdigit() and "SMs" in line for line in lines)


def meshes(context, part):
    """Both workloads, each with and without recorded stream waits."""
    found = gpus(context)
    if found < RANKS:
        context.results.add(part, "steps on two axes", "-", f"not run: they take {RANKS} GPUs, and this machine has {found}")
        return
    scrubbed = []
    for kind, axes in MESHES.items():
        try:
            workload(context, part, kind, axes, scrubbed)
        except Trouble as trouble:
            context.results.add(part, f"{kind}", "runs", f"gave up: {trouble}", False)
    keep(context, part, scrubbed)


def workload(context, part, kind, axes, scrubbed):
    """Trains, imports, replays and compares one workload; adds to the scrubbed captures, which show why if it gives up."""
    folder, name = context.work / f"train-{kind}", f"{kind}_large"
    unprofiled = parts_fidelity.train(context, kind, folder, limit=90, recipe=TRAIN, ranks=RANKS)[name]
    traces = scrub(context, folder, name, LEVEL)
    scrubbed += traces
    what = Workload(name, STEP_PERCENT, UNPROFILED, ("captured",), TRANSFER_PERCENT)
    parts_fidelity.compare(context, part, what, traces, unprofiled, "the one trained here")
    pattern = context.work / f"{name}.yaml"
    judge_axes(context, part, name, pattern, axes)
    judge_refusal(context, part, name, pattern)
    parts_fidelity.train(context, kind, folder, limit=90, recipe=TRAIN, ranks=RANKS, sync=True)
    recorded = scrub(context, folder, f"{name}_sync", LEVEL_WITH_WAITS)
    scrubbed += recorded
    context.maestro("import", *recorded, "-o", context.work / f"{name}_sync.yaml")
    context.results.add(part, f"{name} with recorded stream waits", "imports", f"{len(recorded)} ranks", True)


def scrub(context, folder, name, level):
    """The traces of `name` without paths and host names, in the order of ranks."""
    clean = context.work / name
    clean.mkdir(exist_ok=True)
    for raw in sorted(folder.glob(f"{name}_rank*.json.gz")):
        context.must([sys.executable, SCRUB, raw, clean / raw.name, level])
    return sorted(clean.glob("*.json.gz"))


def judge_axes(context, part, name, pattern, axes):
    """The pattern's axes are the mesh's, by name and size."""
    found = {axis["name"]: {len(team) for team in axis["teams"]} for axis in context.shown(pattern)["axes"]}
    there = all(found.get(axis) == {size} for axis, size in axes.items())
    said = ", ".join(f"{axis} of {'/'.join(map(str, sorted(sizes)))}" for axis, sizes in found.items())
    wanted = ", ".join(f"{axis} of {size}" for axis, size in axes.items())
    context.results.add(part, f"axes of {name}", wanted, said, there)


def judge_refusal(context, part, name, pattern):
    """On two of the GPUs the pattern is refused as bad input, in one sentence that says how many ranks and GPUs there are."""
    done = context.run([context.maestro_file, "replay", pattern, "--backend", "nccl", "-o", context.work / "refused"],
                       env={"CUDA_VISIBLE_DEVICES": "0,1"})
    sentence = done.output.strip()
    clear = done.status == 2 and f"{RANKS} ranks" in sentence and "2 GPUs" in sentence and sentence.count("\n") == 0
    context.results.add(part, f"{name} on two GPUs", "refused in a sentence", f"exit {done.status}: {sentence[:200]}", clear)


def keep(context, part, scrubbed):
    """Leaves the captures beside the results, for fixtures/captures/kineto."""
    if not scrubbed:
        return
    with tarfile.open(context.out / "captures.tar", "w") as archive:
        for file in scrubbed:
            archive.add(file, f"{file.parent.name}/{file.name}")
    size = sum(file.stat().st_size for file in scrubbed)
    context.results.add(part, "captures, scrubbed", f"at most {MOST_BYTES >> 20} MiB in all",
                        f"{len(scrubbed)} files, {size / (1 << 20):.1f} MiB, in captures.tar", size <= MOST_BYTES)
