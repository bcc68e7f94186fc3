"""What a step costs over a hand-written loop: the same model, data, optimizer and clipping, run by turns.

    python tests/benchmarks/bench_step.py [--steps 1000] [--repeats 7] [--hooks LogHook,LrHook,CheckpointHook]

Prints CPU microseconds a step (median over the repeats), the ratio to the raw loop of the same turn, and whether both
end with equal weights when the order of the data is the same. One thread, so that CPU time is what a step costs.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time

import torch
from torch import nn

from scepter_core import DATASETS, MODELS, SOLVERS, load_config


@MODELS.register_class()
class BenchNet(nn.Module):
    """32 → 32 → 10: so small that what surrounds it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.cross_entropy(self.net(x), y)}


@DATASETS.register_class()
class BenchRows(torch.utils.data.Dataset):
    """Rows of noise."""

    def __init__(self, size: int = 8000) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(size, 32, generator=generator)
        self.y = torch.randint(0, 10, (size,), generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[index], "y": self.y[index]}


def engine(steps: int, hooks: list[str], folder: str) -> tuple[float, torch.Tensor]:
    """CPU seconds of the loop, and the weights at its end."""
    keys = {"LrHook": {"SET_BY_EPOCH": False, "WARMUP_FUNC": None}, "CheckpointHook": {"INTERVAL": 0}}
    config = {
        "ENV": {"DEVICE": "cpu"},
        "SOLVER": {
            "NAME": "TrainValSolver",
            "WORK_DIR": folder,
            "MAX_STEPS": steps,
            "TRAIN_DATA": {"NAME": "BenchRows", "SIZE": steps * 8, "BATCH_SIZE": 8, "SHUFFLE": False},
            "MODEL": {"NAME": "BenchNet"},
            "OPTIMIZER": {"NAME": "AdamW", "LEARNING_RATE": 1e-3},
            "TRAIN_HOOKS": [
                {"NAME": "BackwardHook", "GRADIENT_CLIP": 1.0},
                *({"NAME": name, **keys.get(name, {})} for name in hooks),
            ],
        },
    }
    logger = logging.Logger("bench")
    logger.addHandler(logging.NullHandler())
    solver = SOLVERS.build(load_config(config).SOLVER, logger=logger)
    solver.set_up_pre()
    solver.set_up()
    with torch.no_grad():
        for parameter, start in zip(solver.model.parameters(), _start(), strict=True):
            parameter.copy_(start)
    began = time.process_time()
    solver.solve()
    return time.process_time() - began, _weights(solver.model)


def raw(steps: int) -> tuple[float, torch.Tensor]:
    """The same by hand, with the optimizer's fused implementation as the engine takes it."""
    model = BenchNet()
    with torch.no_grad():
        for parameter, start in zip(model.parameters(), _start(), strict=True):
            parameter.copy_(start)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loader = torch.utils.data.DataLoader(BenchRows(steps * 8), batch_size=8)
    began = time.process_time()
    for batch in loader:
        loss = model(**batch)["loss"]
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return time.process_time() - began, _weights(model)


def _start() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [parameter.detach() for parameter in BenchNet().parameters()]


def _weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--hooks", default="LogHook,LrHook,CheckpointHook")
    options = parser.parse_args()
    torch.set_num_threads(1)
    hooks = [name for name in options.hooks.split(",") if name]
    with tempfile.TemporaryDirectory() as folder:
        raw(50), engine(50, hooks, folder)
        turns = [(raw(options.steps), engine(options.steps, hooks, folder)) for _ in range(options.repeats)]
    micro = 1e6 / options.steps
    print(f"{'':16}{'CPU us a step':>16}")
    print(f"{'raw loop':16}{statistics.median(r[0] for r, _ in turns) * micro:16.0f}")
    print(f"{'this engine':16}{statistics.median(e[0] for _, e in turns) * micro:16.0f}")
    ratios = sorted(e[0] / r[0] for r, e in turns)
    print(f"ratio {statistics.median(ratios):.3f} ({ratios[0]:.3f}-{ratios[-1]:.3f})")
    print("equal weights:", all(torch.equal(r[1], e[1]) for r, e in turns))


if __name__ == "__main__":
    main()
