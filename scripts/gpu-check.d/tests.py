"""Tests of the check's readers, judges and tables, on recorded text and made-up runs. No GPU is needed:

    python3 scripts/gpu-check.d/tests.py
"""

import json
import sys
import tempfile
import time
import unittest
from pathlib import Path

import data
import kernels
import parts_alone
import parts_fidelity
import parts_meshes
import parts_units
from check import PATTERNS, Context, Done, Trouble, median, number, percent, size_name, table

MIB = 1 << 20
DDP = parts_fidelity.Workload("ddp", 3)


def context(folder):
    """A check that runs nothing."""
    return Context(folder, folder, Path("maestro"), None, quick=True, limit=60)


class Readers(unittest.TestCase):
    def test_nccl_tests(self):
        times = data.nccl_tests(data.baseline("nccl_tests_2xh200.txt"))
        self.assertEqual(len(times), 36)
        self.assertEqual(times["all_reduce", MIB], 16.14)
        self.assertEqual(times["all_to_all", 64 * MIB], 138.54)
        self.assertEqual(times["broadcast", 1024 * MIB], 2941.34)
        self.assertEqual(data.nccl_tests("no such thing\n"), {})

    def test_every_pattern_block_has_a_figure_of_nccl_tests(self):
        times = data.nccl_tests(data.baseline("nccl_tests_2xh200.txt"))
        lines = (PATTERNS / "nccl_tests.yaml").read_text().split("lanes:")[0].split("blocks:")[1].splitlines()
        names = [line.strip().split(":")[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
        self.assertEqual({data.block_size(name) for name in names}, set(times))

    def test_units_judged_are_in_the_pattern(self):
        text = (PATTERNS / "gpu_units.yaml").read_text()
        for block in [parts_units.EMPTY, *parts_units.HOLDS, *parts_units.MOVED, *parts_units.PRODUCTS]:
            self.assertIn(f"\n  {block}: ", text)

    def test_unprofiled_steps(self):
        steps = data.unprofiled_steps("noise\n" + data.baseline("unprofiled_steps.jsonl"))
        self.assertAlmostEqual(steps["ddp_large"], 197.8, delta=0.1)
        self.assertAlmostEqual(steps["fsdp_large"], 185.7, delta=0.1)
        self.assertAlmostEqual(steps["pp_large"], 114.6, delta=0.1)
        self.assertAlmostEqual(steps["moe"], 36.1, delta=0.2)

    def test_pytorch_collectives(self):
        text = 'W1130 noise {\n{"op": "all_reduce", "bytes": 1048576, "median_ms": 0.0519}\n{"workload": "ddp"}\n'
        self.assertEqual(data.pytorch_collectives(text), {("all_reduce", MIB): 51.9})

    def test_block_size(self):
        self.assertEqual(data.block_size("all_to_all_16MiB"), ("all_to_all", 16 * MIB))
        with self.assertRaises(Trouble):
            data.block_size("forward_1")

    def test_notes(self):
        with tempfile.TemporaryDirectory() as name:
            run = {"notes": ["issuing took the host 94.9 us a block; times of ranks agree within 8.2 us",
                             "timing a block costs 5.98 us on the device: two events"]}
            (Path(name) / "run.json").write_text(json.dumps(run))
            self.assertEqual(data.notes(Path(name)), {"issue": 94.9, "clock": 8.2, "events": 5.98})

    def test_conformance(self):
        text = ("running 1 test\ntest every_back_end_conforms ... dry: 1 cases passed, 31 skipped: they need more of this machine\n"
                'nccl: reductions, 1 ranks: Failed("rank 0")\nnccl: 11 cases passed, 20 skipped: they need more\n')
        counts, failures = data.conformance(text)
        self.assertEqual(counts, {"dry": (1, 31), "nccl": (11, 20)})
        self.assertEqual(failures, ['nccl: reductions, 1 ranks: Failed("rank 0")'])

    def test_objects_that_share_a_line(self):
        self.assertEqual(data.json_lines('x {"a": 0}\n{"a": 1}{"a": 2}\n {"a": 3} y\n{"cut": '),
                         [{"a": 1}, {"a": 2}, {"a": 3}])

    def test_sanitizer(self):
        self.assertEqual(data.sanitizer("========= ERROR SUMMARY: 0 errors\n"), 0)
        self.assertEqual(data.sanitizer("========= ERROR SUMMARY: 1 error\n"), 1)
        race = "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)\n"
        self.assertEqual(data.sanitizer(race), 2)
        self.assertEqual(data.sanitizer("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"), 0)
        self.assertIsNone(data.sanitizer("cut off"))

    def test_medians(self):
        row = {"block": "a", "state": "alone", "start_ns": 1000, "end_ns": 4000, "transfer_ns": 2000}
        rows = [row, {**row, "transfer_ns": 4000}, {**row, "transfer_ns": None}, {**row, "state": "overlapped"}]
        self.assertEqual(data.medians_us(rows, "alone", "transfer"), {"a": 3.0})
        self.assertEqual(data.medians_us(rows, "overlapped", "latency"), {"a": 3.0})

    def test_exposed(self):
        def block(name, exposed_ms):
            return {"block": name, "exposed_ms": exposed_ms, "avg_ms": 1.0, "executions": 20}

        blocks = [block("much", 0.5), block("little", 0.019), block("none", 0.0), block("compute", None)]
        found = data.exposed(blocks, {"steps": 10, "ranks": 2})
        bare = {name: is_bare for name, (_, _, is_bare) in found.items()}
        self.assertEqual(bare, {"much": True, "little": False, "none": False})
        self.assertEqual(found["much"][:2], (500.0, 1000.0))


class Judges(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.context = context(Path(self.folder.name))

    def tearDown(self):
        self.context.log.close()
        self.folder.cleanup()

    def verdicts(self):
        return [row.holds for row in self.context.results.rows]

    def test_alone(self):
        wanted = {("all_reduce", MIB): 16.0, ("all_reduce", 16 * MIB): 100.0, ("all_reduce", 64 * MIB): 200.0}
        near = {("all_reduce", MIB): 18.9, ("all_reduce", 16 * MIB): 103.9, ("all_reduce", 64 * MIB): 193.0}
        parts_alone.judge_together(self.context, "c", near, wanted)
        far = {("all_reduce", MIB): 19.1, ("all_reduce", 16 * MIB): 104.1}
        parts_alone.judge_together(self.context, "c", far, wanted)
        parts_alone.judge_single(self.context, "c", near, wanted)
        parts_alone.judge_single(self.context, "c", {("all_reduce", MIB): 21.1}, wanted)
        self.assertEqual(self.verdicts(), [True, True, False, False, True, False])
        self.assertEqual(parts_alone.line(("all_reduce", MIB), wanted, {}, {}, {}, {}, {})[3:], ["-"] * 8)

    def test_units(self):
        alone = {parts_units.EMPTY: 2.0, parts_units.COPY: 520.0, "memory_1GiB": 290.0, "memory_8GiB": 3000.0,
                 **{block: wanted + 2.5 for block, wanted in parts_units.HOLDS.items()}}
        parts_units.judge_holds(self.context, "f", alone)
        parts_units.judge_memory(self.context, "f", alone)
        self.assertEqual(self.verdicts(), [None, True, True, False])
        parts_units.judge_holds(self.context, "f", {**alone, "hold_1ms": 1004.0})
        self.assertIs(self.verdicts()[-1], False)

    def test_pairs(self):
        alone = {"gather_4MiB": 30.0, "scatter_4MiB": 30.0, "gather_8MiB": 40.0}
        line = parts_units.pair(4 * MIB, alone, {"gather_4MiB": 45.0, "scatter_4MiB": 40.0})
        self.assertEqual(line, ["4 MiB", "30.00", "45.00", "1.50x", "30.00", "40.00", "1.33x", "1.33x"])
        self.assertEqual(parts_units.pair(8 * MIB, alone, {})[-1], "-")

    def test_steps_and_collectives(self):
        parts_fidelity.step(self.context, "d", "ddp", 199.0, 197.8, "the recorded one", 3)
        parts_fidelity.step(self.context, "d", "ddp", 190.0, 197.8, "the recorded one", 3)
        parts_fidelity.step(self.context, "d", "ddp, asap", 190.0, 197.8, "the recorded one")
        captured = {"a": 100.0, "b": 100.0}
        parts_fidelity.judge_transfers(self.context, DDP, ["a", "b"], captured, None, {"a": 109.0, "b": 89.0})
        bare = {side: {"a": (30.0, 100.0, True), "b": (0.0, 9.0, side == "replayed")}
                for side in ("captured", "dry", "replayed")}
        parts_fidelity.judge_exposure(self.context, "ddp", bare)
        self.assertEqual(self.verdicts(), [True, False, None, False, False])
        self.assertIn("only replayed: b", self.context.results.rows[-1].measured)

    def test_the_bar_on_transfers_is_on_kernels_where_they_are_known(self):
        captured, spans = {"a": 335.0, "b": 100.0}, {"a": 1100.0, "b": 104.0}
        parts_fidelity.judge_transfers(self.context, DDP, ["a", "b"], captured, {"a": 340.0, "b": 91.0}, spans)
        parts_fidelity.judge_transfers(self.context, DDP, ["a", "b"], captured, {"a": 340.0}, spans)
        parts_fidelity.judge_transfers(self.context, DDP, ["a", "b"], captured, {}, spans)
        parts_fidelity.judge_transfers(self.context, DDP, ["a", "b"], captured, None, spans)
        self.assertEqual(self.verdicts(), [True, None, False, None, False, None, False])
        said = [row.measured for row in self.context.results.rows]
        self.assertTrue(said[0].startswith("by kernels: 2 of 2 blocks within (2 with 5 us more); farthest b -9 %"))
        self.assertTrue(said[1].startswith("by spans: 1 of 2 blocks within"))
        self.assertTrue(said[2].startswith("by kernels: 1 of 2 blocks within"))
        self.assertEqual(said[4], "by kernels: none measured")
        self.assertTrue(said[6].startswith("by spans, which hold the wait for multiprocessors: 1 of 2"))
        self.assertEqual(parts_fidelity.against(340.0, 335.0), ("340.00", "+1.5"))
        self.assertEqual(parts_fidelity.against(None, 335.0), ("-", "-"))

    def test_without_a_profiler_the_step_is_judged_by_spans(self):
        self.context.recorder = Trouble("no CUPTI")
        self.assertIsNone(parts_fidelity.by_kernels(self.context, "d", "ddp", "ddp.yaml", 100.0))
        self.assertEqual(self.context.results.rows[-1].measured, "not to be had: no CUPTI")
        self.assertEqual(self.verdicts(), [None])


class Kernels(unittest.TestCase):
    """Kernels of a made-up step: two ranks; a reduce and a gather lane; a message from each rank on a third."""

    KINDS = {"reduce": "all_reduce", "gather": "all_gather", "send": "p2p", "recv": "p2p"}
    LANES = ["compute", "all_reduce", "all_gather", "messages"]

    def step(self, iteration):
        """Rows of an iteration, each with the start and end of its kernel on a clock that is 10^6 ns ahead.

        The spans of rank 0 begin 700 us before the kernels do: no multiprocessor is free.
        """
        blocks = [("reduce", "reduce", "all_reduce", 1_000_000), ("gather", "gather", "all_gather", 1_100_000),
                  ("reduce", "reduce", "all_reduce", 2_000_000), ("send", "recv", "messages", 3_000_000)]
        rows, begun = [], {0: 700_000, 1: 20_000}
        for instance, (*names, lane, end) in enumerate(blocks):
            for rank in (0, 1):
                start = end - 300_000
                last_span = max(start - begun[0], start - begun[1])
                span = start - begun[rank]
                row = {"round": 0, "iteration": iteration, "rank": rank, "block": names[rank], "axis": "dp",
                       "lane": lane, "instance": instance, "start_ns": span, "end_ns": end + 2_000,
                       "wait_ns": last_span - span}
                # Rank 1's kernel begins 50 us later, and its clock is 400 ns behind.
                clock = 1_000_000 + 10_000_000 * iteration - 400 * rank
                rows.append((row, (clock + start + 50_000 * rank, clock + end)))
        return rows

    def recorded(self, streams=(13, 14, 15), iterations=3):
        """The rows, and what the library writes: rehearsal, a warm-up iteration, and those that are recorded."""
        names = {"all_reduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                 "all_gather": "_Z33ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE",
                 "messages": "_Z25ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE"}
        stream = dict(zip(names, streams))
        lines = [f"{rank},{stream[lane]},{10 + number},{12 + number},{names[lane]}" for rank in (0, 1)
                 for number, lane in enumerate(names)]
        rows = []
        for iteration in range(iterations + 1):
            for row, (start, end) in self.step(iteration):
                lines.append(f"{row['rank']},{stream[row['lane']]},{start},{end},{names[row['lane']]}")
                if iteration > 0:
                    rows.append({**row, "iteration": iteration - 1})
        return rows, "\n".join([*reversed(lines), "1,7,5,6,gemm", "# end"]) + "\n"

    def test_transfers_are_from_when_all_kernels_ran(self):
        rows, text = self.recorded()
        pairs = kernels.pair(rows, self.KINDS, self.LANES, kernels.read(text))
        self.assertEqual(len(pairs), len(rows))
        found = kernels.transfers(pairs)
        # 300 us from the first start, 250 us from the last; rank 1's clock is behind by 0.4 us, of which half shows.
        self.assertEqual(found.keys(), self.KINDS.keys())
        self.assertAlmostEqual(found["reduce"], 250.2)
        self.assertAlmostEqual(found["send"], 250.4)
        self.assertAlmostEqual(found["recv"], 250.0)
        self.assertAlmostEqual(kernels.apart(pairs, self.KINDS), -0.4)
        self.assertEqual(kernels.strays(pairs), 0.0)

    def test_streams_numbered_otherwise_are_told_by_their_kernels(self):
        rows, text = self.recorded(streams=(15, 14, 13))
        pairs = kernels.pair(rows, self.KINDS, self.LANES, kernels.read(text))
        self.assertAlmostEqual(kernels.transfers(pairs)["reduce"], 250.2)

    def test_kernels_that_are_not_one_for_each_execution(self):
        rows, text = self.recorded()
        recorded = kernels.read(text)
        for wrong, why in (({**self.KINDS, "gather": "broadcast"}, "one kernel for each execution on lane all_reduce"),
                           ({**self.KINDS, "send": "all_to_all", "recv": "all_reduce"}, "rank 1 did not run")):
            with self.assertRaisesRegex(Trouble, why):
                kernels.pair(rows, wrong, self.LANES, recorded)
        with self.assertRaisesRegex(Trouble, "1 devices ran kernels of collectives, for 2 ranks"):
            kernels.pair(rows, self.KINDS, self.LANES, {0: recorded[0]})
        with self.assertRaisesRegex(Trouble, "on 3 lanes, and on 2 streams"):
            kernels.pair(rows, self.KINDS, self.LANES, {0: {13: recorded[0][13], 14: recorded[0][14]}, 1: {}})
        few = {device: {stream: ran[-2:] for stream, ran in streams.items()} for device, streams in recorded.items()}
        with self.assertRaisesRegex(Trouble, "did not run one kernel"):
            kernels.pair(rows, self.KINDS, self.LANES, few)

    def test_kernels_of_other_executions_stray(self):
        rows, text = self.recorded()
        pairs = kernels.pair(rows, self.KINDS, self.LANES, kernels.read(text))
        shifted = [(row, other) for (row, _), (_, other) in zip(pairs, pairs[1:] + pairs[:1])]
        self.assertGreater(kernels.strays(shifted), kernels.STRAY_US)
        # One lane of three that has another's kernels is not outvoted by the others.
        late = [(row, kernels.Kernel(ran.operation, ran.start, ran.end + 400_000 * (row["lane"] == "messages")))
                for row, ran in pairs]
        self.assertAlmostEqual(kernels.strays(late), 400.0)

    def test_records_that_are_not_complete(self):
        line = "0,13,1,2,ncclDevKernel_SendRecv\n"
        for text, why in ((line, "has no end"), (line + "# 3 records were lost\n# end\n", "3 records were lost"),
                          ("# cuptiActivityEnable: CUPTI_ERROR_UNKNOWN\n", "cuptiActivityEnable: CUPTI_ERROR_UNKNOWN"),
                          ("", "has no end")):
            with self.assertRaisesRegex(Trouble, why):
                kernels.read(text)
        self.assertEqual(kernels.read(line + "# end\n"), {0: {13: [kernels.Kernel("SendRecv", 1, 2)]}})

    def test_kinds(self):
        for operation, kind in (("AllReduce", "all_reduce"), ("AllReduce", "barrier"), ("SendRecv", "all_to_all"),
                                ("AlltoAll", "all_to_all"), ("SendRecv", "p2p"), ("ReduceScatter", "reduce_scatter"),
                                ("AllGather", "group"), ("Broadcast", "broadcast")):
            self.assertTrue(kernels.fits(operation, kind), (operation, kind))
        for operation, kind in (("AllReduce", "reduce"), ("SendRecv", "all_gather"), ("AllGather", "all_to_all")):
            self.assertFalse(kernels.fits(operation, kind), (operation, kind))

    def test_newest_record(self):
        header = "} CUpti_ActivityKernel9;\n}  CUpti_ActivityKernel10;\n} CUpti_ActivityMemcpy6;"
        self.assertEqual(kernels.newest_record(header), "CUpti_ActivityKernel10")
        with self.assertRaises(Trouble):
            kernels.newest_record("")


class Running(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.context = context(Path(self.folder.name))

    def tearDown(self):
        self.context.log.close()
        self.folder.cleanup()

    def test_a_program_is_killed_with_its_children_when_its_time_is_up(self):
        began = time.monotonic()
        script = "import os; print('begun', flush=True); os.system('sleep 30')"
        done = self.context.run([sys.executable, "-c", script], limit=2)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual((done.status, done.output), (None, "begun\n"))

    def test_trouble_names_the_last_line(self):
        with self.assertRaisesRegex(Trouble, "exit 3: at last"):
            self.context.must([sys.executable, "-c", "print('first'); print('at last'); exit(3)"])

    def test_tables(self):
        self.assertEqual(table(["a", "bb"], [["1", "x|y"]]), "| a | bb   |\n|---|------|\n| 1 | x\\|y |")
        self.context.results.add("a", "what", "bar", "measured", True)
        self.context.results.write(Path(self.folder.name), ["Opening."])
        self.assertIn("| holds", (Path(self.folder.name) / "results.md").read_text())

    def test_figures(self):
        self.assertEqual((number(None), number(1234.5, 1), number(2, 1, True)), ("-", "1,234.5", "+2.0"))
        self.assertEqual((median([None, 1, 3]), median([])), (2, None))
        self.assertAlmostEqual(percent(103, 100), 3)
        self.assertEqual((size_name(16 * MIB), size_name(1 << 30), size_name(7)), ("16 MiB", "1 GiB", "7 B"))


class Meshes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.context = context(Path(self.folder.name))
        self.addCleanup(self.context.log.close)

    def verdicts(self):
        return [row.holds for row in self.context.results.rows]

    def test_transfers_have_the_bar_of_their_workload(self):
        for workload in (DDP, parts_fidelity.Workload("wide", 5, transfers=15.0)):
            parts_fidelity.judge_transfers(self.context, workload, ["a"], {"a": 100.0}, None, {"a": 114.0})
        self.assertEqual(self.verdicts(), [False, True])
        self.assertEqual([row.bar for row in self.context.results.rows], ["within 10 %", "within 15 %"])

    def test_axes_are_the_mesh_by_name_and_size(self):
        self.context.shown = lambda _: {"axes": [{"name": "dp", "teams": [[0, 2], [1, 3]]}, {"name": "tp", "teams": [[0, 1], [2, 3]]}]}
        for axes in ({"dp": 2, "tp": 2}, {"dp": 2, "pp": 2}, {"dp": 4, "tp": 2}):
            parts_meshes.judge_axes(self.context, "m", "x", Path("x.yaml"), axes)
        self.assertEqual(self.verdicts(), [True, False, False])

    def test_a_refusal_is_bad_input_in_one_sentence(self):
        clear = "maestro: nccl: the pattern has 8 ranks and this machine has 2 GPUs; give its axes smaller sizes\n"
        for done in (Done(2, clear, 0.1), Done(101, clear, 0.1), Done(2, clear + "and more\n", 0.1), Done(0, "", 0.1)):
            self.context.run = lambda *_, done=done, **__: done
            parts_meshes.judge_refusal(self.context, "m", "x", Path("x.yaml"))
        self.assertEqual(self.verdicts(), [True, False, False, False])

    def test_fewer_gpus_are_said_and_nothing_is_run(self):
        self.context.maestro = lambda *_: Done(0, "GPUs\n  0  NVIDIA H200, 139 GiB, 132 SMs\n  1  NVIDIA H200, 139 GiB, 132 SMs\n", 0.1)
        parts_meshes.meshes(self.context, "m")
        row, = self.context.results.rows
        self.assertIsNone(row.holds)
        self.assertIn("8 GPUs, and this machine has 2", row.measured)

    def test_a_scrubbed_capture_has_what_an_import_reads(self):
        sys.path.insert(0, str(parts_meshes.SCRUB.parent))
        import scrub
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "ts": 11, "dur": 1, "args": {"correlation": 7}}
        events = [
            {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "tid": 1, "ts": 1, "dur": 4, "args": {}},
            {"ph": "X", "cat": "cpu_op", "name": "idle", "tid": 1, "ts": 2, "dur": 1, "args": {}},
            {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "tid": 1, "ts": 10, "dur": 9, "args": {}},
            {"ph": "X", "cat": "cpu_op", "name": "mm", "tid": 1, "ts": 10, "dur": 3, "args": {"Input Dims": [[2, 2]], "Ev Idx": 3}},
            call,
            {"ph": "X", "cat": "kernel", "name": "gemm", "tid": 7, "ts": 14, "dur": 5, "args": {"correlation": 7, "block": [1, 1, 1]}},
            {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 7, "tid": 1, "ts": 11},
        ]
        trace = scrub.scrubbed({"host_name": "box", "traceName": "/home/me/x.json", "displayTimeUnit": "ms", "traceEvents": events}, "x.json")
        self.assertEqual((trace["traceName"], "host_name" in trace, scrub.leaks(trace)), ("x.json", False, set()))
        names = [[event["name"] for event in scrub.slimmed(trace, level)["traceEvents"]] for level in range(4)]
        self.assertEqual([len(some) for some in names], [7, 6, 5, 4])
        self.assertEqual(names[3], ["ProfilerStep#2", "mm", "cudaLaunchKernel", "gemm"])
        slim = {event["name"]: event["args"] for event in scrub.slimmed(trace, 2)["traceEvents"]}
        self.assertEqual((slim["mm"], slim["gemm"]), ({"Input Dims": [[2, 2]]}, {"correlation": 7}))

    def test_captures_are_packed_and_weighed(self):
        file = Path(self.folder.name) / "rank0.json.gz"
        for size in (1, parts_meshes.MOST_BYTES + 1):
            file.write_bytes(bytes(size))
            parts_meshes.keep(self.context, "m", [file])
        self.assertEqual(self.verdicts(), [True, False])
        self.assertTrue((self.context.out / "captures.tar").is_file())


if __name__ == "__main__":
    unittest.main()
