"""The pages that are looked at, each made by the program from a run that it made itself."""

import json
import os
import subprocess

# What a person who means harm would call things.
IMAGE = "<img src=x onerror=window.hacked=1>"
SCRIPT = "</script><script>window.hacked=1</script>"
QUOTE = "\" autofocus onfocus=\"window.hacked=1"

# Patterns allow that in their own name only; blocks are renamed in the finished page.
HOSTILE = f"""\
maestro: 1
name: '{SCRIPT}'
axes:
  dp: {{size: 2}}
blocks:
  reduce: {{all_reduce: {{size: 64KiB, dtype: f32}}}}
  gather: {{all_gather: {{size: 64KiB, dtype: f32}}}}
  layer: {{compute: [{{hold: 100us}}]}}
lanes:
  compute: {{}}
  comm: {{}}
schedule:
- {{run: layer, lane: compute}}
- {{run: reduce, on: dp, lane: comm}}
- {{run: gather, on: dp, lane: comm}}
"""

# Expert parallelism: uneven all-to-alls, beside compute, with a late rank's waits.
EXPERTS = """\
maestro: 1
name: experts
axes:
  ep: {size: 4}
blocks:
  dispatch: {all_to_all: {size: 36800, dtype: f32, splits: [[1000, 4000, 2000, 500], [3000, 800, 1500, 2500], [100, 900, 700, 4200], [2000, 2000, 2000, 2000]]}}
  small: {all_reduce: {size: 4KiB, dtype: f32}}
  middle: {all_reduce: {size: 64KiB, dtype: f32}}
  large: {all_reduce: {size: 1MiB, dtype: f32}}
  experts: {compute: [{hold: 300us}]}
lanes:
  compute: {}
  comm: {}
schedule:
- repeat: 3
  do:
  - {run: dispatch, on: ep, lane: comm, as: dispatch}
  - {run: experts, lane: compute, after: [dispatch]}
  - {run: small, on: ep, lane: comm}
  - {run: middle, on: ep, lane: comm}
  - {run: large, on: ep, lane: comm}
"""


class Maestro:
    """The program, and the folder in which it works."""

    def __init__(self, program, repository, folder):
        self.program, self.repository, self.folder = program, repository, folder

    def __call__(self, *words, variables=None):
        done = subprocess.run([self.program, *map(str, words)], cwd=self.folder, capture_output=True, text=True,
                              env={**os.environ, **(variables or {})})
        if done.returncode != 0:
            raise RuntimeError(f"maestro {' '.join(map(str, words))}: {done.stderr.strip()}")

    def page(self, name, *words):
        self("report", *words, "--format", "html", "-o", f"{name}.html")
        return self.folder / f"{name}.html"


def renamed(page):
    """The page with hostile names of blocks and lanes in its data, written as the program would write them."""
    before, rest = page.read_text().split('id="data">')
    data, after = rest.split("</script>", 1)
    data = json.loads(data)
    for block, name in zip(data["blocks"], [IMAGE, SCRIPT, QUOTE]):
        block["name"] = name
    for lane in [lane for line in data["timelines"] for rank in line["ranks"] for lane in rank["lanes"]]:
        lane["name"] = IMAGE
    page.write_text(f'{before}id="data">{json.dumps(data).replace("<", chr(92) + "u003c")}</script>{after}')
    return page


def make(maestro):
    """Name and file of each page."""
    (maestro.folder / "hostile.yaml").write_text(HOSTILE)
    (maestro.folder / "experts.yaml").write_text(EXPERTS)
    captures = maestro.repository / "fixtures/captures/kineto"
    patterns = maestro.repository / "fixtures/patterns"
    few = ["--backend", "threads", "--iterations", "4", "--rounds", "2"]

    maestro("import", captures / "fsdp_large", "-o", "fsdp.yaml", "--run", "captured")
    maestro("replay", "fsdp.yaml", "--backend", "dry", "-o", "simulated")
    yield "captured-over-simulated", maestro.page("captured-over-simulated", "simulated", "captured", "--link-rate", "450GB/s")

    for run in ["before", "after"]:
        maestro("replay", "experts.yaml", *few, "-o", run)
    yield "before-over-after", maestro.page("before-over-after", "before", "after")

    # Five runs a side, which decide up to six comparisons. The experts take so much longer before that no noise hides it.
    (maestro.folder / "slow.yaml").write_text(EXPERTS.replace("300us", "60ms"))
    for side, pattern in [("sides/before", "slow.yaml"), ("sides/after", "experts.yaml")]:
        for n in range(5):
            maestro("replay", pattern, "--backend", "threads", "--iterations", "4", "--rounds", "1", "--no-verify", "-o", f"{side}/{n}")
    (maestro.folder / "rules.yaml").write_text("gate: 1\nmin_runs: 5\nrules: [{name: no slower, metric: step, threshold: 10%}]\n")
    maestro("diff", "sides/before", "--against", "sides/after", "--changed", "pattern", "--metric", "step,overlapped",
            "--gate", "rules.yaml", "--format", "html", "-o", "verdicts.html")
    yield "verdicts", maestro.folder / "verdicts.html"

    maestro("sweep", "experts.yaml", "--backend", "threads", "--iterations", "4", "--rounds", "1", "--no-verify",
            "--size", "4KiB..1MiB*4", "--set", "axis.ep.max_ctas=4,8", "-o", "swept")
    yield "sweep", maestro.page("sweep", "swept", "--link-rate", "10GB/s")

    maestro("replay", "fsdp.yaml", "--backend", "dry", "--axis", "dp=8", "--even", "-o", "eight")
    yield "eight-ranks", maestro.page("eight-ranks", "eight")

    maestro("replay", "hostile.yaml", *few, "-o", IMAGE, variables={"NCCL_HOSTILE": QUOTE})
    yield "hostile", renamed(maestro.page("hostile", IMAGE))

    maestro("replay", patterns / "empty_blocks.yaml", "--backend", "dry", "-o", "empty")
    yield "empty-blocks", maestro.page("empty-blocks", "empty")
