"""Writes checkpoint folders with torch itself: run by the trainer's Python with two gloo ranks.

    torchrun --nproc-per-node 2 tests/e2e/write_checkpoints.py FOLDER

FOLDER/fsdp: a small model under FSDP2 and its AdamW, saved as accelerate does with
fsdp_state_dict_type SHARDED_STATE_DICT. FOLDER/torch: what else trainers write by torch.save.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    """Write all of it."""
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 16)).sum().backward()
    optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    save({"model": weights}, folder / "fsdp" / "pytorch_model_fsdp_0")
    save({"optimizer": moments}, folder / "fsdp" / "optimizer_0")
    if dist.get_rank() == 0:
        write_torch_files(folder / "torch")
    dist.destroy_process_group()


def save(state: dict[str, object], folder: Path) -> None:
    """As accelerate.utils.fsdp_utils does."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = dcp.FileSystemWriter(str(folder))
    dcp.save(state, storage_writer=writer, planner=DefaultSavePlanner())


def write_torch_files(folder: Path) -> None:
    """States of every schedule and of the random numbers, and weights of every kind of float."""
    folder.mkdir(parents=True)
    weight = torch.nn.Parameter(torch.ones(4, 4))
    optimizer = torch.optim.AdamW([weight], amsgrad=True)
    weight.sum().backward()
    optimizer.step()
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
        torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 10),
        torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
    ]
    for number, schedule in enumerate(schedules):
        torch.save(schedule.state_dict(), folder / f"scheduler-{number}.pt")
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    states = {
        "python": random.getstate(),
        "numpy": numpy.random.get_state(),
        "cpu": torch.random.get_rng_state(),
        "cuda": [torch.random.get_rng_state()],
    }
    torch.save(states, folder / "rng_state_0.pth")
    kinds = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    model: dict[str, object] = {str(kind): torch.ones(8, dtype=kind) for kind in kinds}
    model |= {"shared": weight, "view": weight[1:], "mask": torch.ones(3, dtype=torch.bool)}
    torch.save(model, folder / "pytorch_model.bin")
    torch.save({**model, "broken": torch.tensor([1.0, torch.nan]).half()}, folder / "broken.bin")


if __name__ == "__main__":
    main()
