from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import scepter_core
from scepter_core import read_checkpoint
from scepter_pylm.curve import draw

HERE = Path(__file__).parents[1]
SMALL = [
    "SOLVER.MAX_STEPS=10", "SOLVER.EVAL_INTERVAL=6", "SOLVER.TRAIN_DATA.BATCH_SIZE=4", "SOLVER.EVAL_DATA.WINDOWS=8",
    "SOLVER.MODEL.SAMPLE=12", "SOLVER.LR_SCHEDULER.WARMUP_STEPS=2", "SOLVER.TRAIN_HOOKS[LogHook].LOG_INTERVAL=2",
    "SOLVER.TRAIN_HOOKS[CheckpointHook].INTERVAL_STEPS=5",
]  # fmt: skip


def run(folder: Path, *overrides: str, **more: Any) -> Any:
    return scepter_core.run(HERE / "pylm.yaml", [f"SOLVER.WORK_DIR={folder}", *SMALL, *overrides], **more)


def test_norms_and_biases_do_not_decay(tmp_path: Path) -> None:
    solver = run(tmp_path, "SOLVER.MAX_STEPS=2", "SOLVER.LR_SCHEDULER.WARMUP_STEPS=0")
    names = {id(parameter): name for name, parameter in solver.model.named_parameters()}
    groups = [({names[id(p)] for p in group["params"]}, group["weight_decay"]) for group in solver.optimizer.param_groups]
    spared = {name for name in names.values() if "norm" in name or name.endswith(".bias")}
    assert groups == [(set(names.values()) - spared, 0.1), (spared, 0.0)]
    assert "embed.weight" in groups[0][0]


def test_an_export_completes_a_line_and_the_probe_shows_a_sample(tmp_path: Path) -> None:
    solver = run(tmp_path)
    assert (solver.train_steps, solver.total_updates) == (10, 5)
    sample = json.loads((tmp_path / "probe/eval/step_6/probe.json").read_text())["sample"]
    assert re.match(r"def .{12}$", sample, re.DOTALL)
    done = subprocess.run(
        [sys.executable, HERE / "complete.py", tmp_path, "import os"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.startswith("import os")
    draw(tmp_path / "metrics.jsonl", tmp_path / "curve.png", 3.5)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_resumed_run_ends_the_same_and_the_probe_changes_nothing(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    run(tmp_path / "half", "SOLVER.EVAL_HOOKS=[]", resume=str(tmp_path / "whole/checkpoints/ldm_step-5.pth"))
    states = [read_checkpoint(str(tmp_path / name / "checkpoints/ldm_step-last.pth")) for name in ("whole", "half")]
    assert all(torch.equal(value, states[1]["model"][name]) for name, value in states[0]["model"].items())
    assert states[0]["total_iter"] == states[1]["total_iter"]
