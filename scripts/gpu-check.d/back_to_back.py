"""PyTorch's collectives back to back, by nccl-tests' method: 20 issued one behind the other, timed as one.

torchrun --nproc_per_node=2 back_to_back.py

Prints a JSON line an operation and size from 16 MiB up; below, PyTorch's own cost of a call is longer than the
collective. A witness of the machine that it runs on, beside nccl-tests' figures from another.
"""

import json
import os

import torch
import torch.distributed as dist

EXECUTIONS, ROUNDS = 20, 5


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    world = dist.get_world_size()
    for mib in (16, 64, 256, 1024):
        count = (mib << 20) // 2
        full, other = (torch.randn(count, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        part = torch.empty(count // world, device="cuda", dtype=torch.bfloat16)
        operations = {
            "all_reduce": lambda: dist.all_reduce(full),
            "all_gather": lambda: dist.all_gather_into_tensor(full, part),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, full),
            "all_to_all": lambda: dist.all_to_all_single(other, full),
            "broadcast": lambda: dist.broadcast(full, 0),
        }
        for name, operation in operations.items():
            times = sorted(rounds(operation))
            if dist.get_rank() == 0:
                print(json.dumps({"op": name, "bytes": mib << 20, "median_ms": times[len(times) // 2]}), flush=True)
    dist.destroy_process_group()


def rounds(operation):
    """Milliseconds of one execution, of each round."""
    for _ in range(5):
        operation()
    for _ in range(ROUNDS):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        torch.cuda.synchronize()
        first.record()
        for _ in range(EXECUTIONS):
            operation()
        last.record()
        torch.cuda.synchronize()
        yield first.elapsed_time(last) / EXECUTIONS


main()
