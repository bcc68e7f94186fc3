"""Samples a second in one process and two, of one thread each: `python tests/benchmarks/bench_scaling.py`.

Strong scaling keeps the batch of the run (64 samples), weak scaling that of a process (32). Runs of the compared kinds take
turns; the table has medians. What matters are the ratios: the absolute numbers are of the machine and the moment.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TASK = '''
import torch
from torch import nn
from scepter_core import DATASETS, MODELS


@DATASETS.register_class()
class Noise(torch.utils.data.Dataset):
    def __len__(self):
        return 6400

    def __getitem__(self, index):
        return {"x": torch.randn(256)}


@MODELS.register_class()
class Deep(nn.Module):
    def __init__(self, width: int = 512, depth: int = 4):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(256 if n == 0 else width, width) for n in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = torch.relu(block(x))
        return {"loss": x.square().mean()}
'''
KINDS = {
    "one process, 64": (1, 64, "single"),
    "one process, 32": (1, 32, "single"),
    "two, 32 each, ddp": (2, 32, "ddp"),
    "two, 32 each, fsdp": (2, 32, "fsdp"),
    "two, 32 each, fsdp grad_op": (2, 32, "{NAME: fsdp, SHARDING: grad_op}"),
}


def rate(folder: Path, nproc: int, batch_size: int, strategy: str, width: int) -> float:
    """Samples a second over the later windows of a run."""
    work_dir = tempfile.mkdtemp(dir=folder)
    config = {
        "PLUGINS": [str(folder / "task.py")],
        "ENV": {"DEVICE": "cpu"},
        "SOLVER": {
            "NAME": "TrainValSolver", "WORK_DIR": work_dir, "MAX_STEPS": 200,
            "TRAIN_DATA": {"NAME": "Noise", "BATCH_SIZE": batch_size},
            "MODEL": {"NAME": "Deep", "WIDTH": width},
            "OPTIMIZER": {"NAME": "AdamW", "LEARNING_RATE": 1e-4},
            "TRAIN_HOOKS": [{"NAME": "BackwardHook"}, {"NAME": "LogHook", "LOG_INTERVAL": 20}],
        },
    }  # fmt: skip
    file = folder / "cfg.yaml"
    file.write_text(json.dumps(config))
    command = [sys.executable, "-m", "scepter_core", "run", str(file), f"ENV.STRATEGY={strategy}", "--overwrite"]
    subprocess.run(
        [*command, *(["--nproc", str(nproc)] if nproc > 1 else [])],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    rows = [json.loads(line) for line in Path(work_dir, "metrics.jsonl").read_text().splitlines()]
    return statistics.median([row["timing"]["throughput"] for row in rows if row["kind"] == "iter"][2:])


def main(repeats: int = 3) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "task.py").write_text(TASK)
        for width in (256, 1024):
            found: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for _ in range(repeats):
                for kind, (nproc, batch_size, strategy) in KINDS.items():
                    found[kind].append(rate(folder, nproc, batch_size, strategy, width))
            rates = {kind: statistics.median(values) for kind, values in found.items()}
            print(f"\nwidth {width}\n| | samples/s | of the same batch | of the same share |\n| --- | --- | --- | --- |")
            for kind, value in rates.items():
                strong, weak = value / rates["one process, 64"], value / rates["one process, 32"]
                print(f"| {kind} | {value:.0f} | {strong:.2f} | {weak:.2f} |")


if __name__ == "__main__":
    main()
