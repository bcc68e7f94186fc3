"""The example as a user runs it, on a small model and a few steps."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

import scepter_core
from scepter_core import ConfigError, read_checkpoint
from scepter_pylm import CharGPT, decode, source_files
from scepter_pylm.curve import draw

HERE = Path(__file__).parents[1]
SMALL = [
    "SOLVER.MAX_STEPS=10", "SOLVER.EVAL_INTERVAL=6", "SOLVER.TRAIN_DATA.BATCH_SIZE=4", "SOLVER.EVAL_DATA.EVERY=100",
    "SOLVER.MODEL.WIDTH=16", "SOLVER.MODEL.LAYERS=1", "SOLVER.MODEL.HEADS=2", "SOLVER.MODEL.CONTEXT=32",
    "SOLVER.MODEL.SAMPLE=12", "SOLVER.LR_SCHEDULER.WARMUP_STEPS=2", "SOLVER.TRAIN_HOOKS[LogHook].LOG_INTERVAL=1",
    "SOLVER.TRAIN_HOOKS[CheckpointHook].INTERVAL_STEPS=5",
]  # fmt: skip


def run(folder: Path, *overrides: str, **more: Any) -> Any:
    return scepter_core.run(HERE / "pylm.yaml", [f"SOLVER.WORK_DIR={folder}", *SMALL, *overrides], **more)


def call(folder: Path, *words: str | Path) -> str:
    """Run python in a process of its own; returns what it prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what a clock decides."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "timing"} for line in lines]


def test_the_command_the_export_and_its_completion(tmp_path: Path) -> None:
    out = call(tmp_path, "-m", "scepter_core", "run", HERE / "pylm.yaml", "SOLVER.WORK_DIR=run", *SMALL)
    assert "eval epoch 1 done | step 6 | loss" in out
    (export,) = (tmp_path / "run/safetensors").iterdir()
    assert export.name == "pylm-10.safetensors"
    with safe_open(export, framework="pt") as file:
        assert file.metadata()["step"] == "10"
        assert sum(name in ("embed.weight", "head.weight") for name in file.keys()) == 1  # noqa: SIM118  # tied: once
    samples = {path.parent.name: json.loads(path.read_text()) for path in (tmp_path / "run/probe/eval").glob("*/probe.json")}
    assert sorted(samples) == ["step_10", "step_6"]
    assert all(re.fullmatch(r"def .{12}", sample["sample"], re.DOTALL) for sample in samples.values())
    assert "sample def " in out
    assert list((tmp_path / "run/tensorboard").glob("events.out.tfevents.*"))

    (tmp_path / "run/safetensors/pylm-9.safetensors").write_bytes(b"an older one")
    completed = [call(tmp_path, HERE / "complete.py", "run", "import os") for _ in range(2)]
    assert completed[0].startswith("import os")
    assert completed[0].count("\n") == 1
    assert completed[0] == completed[1]
    draw(tmp_path / "run/metrics.jsonl", tmp_path / "curve.png", 3.5)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    code = (HERE / "complete.py").read_text().partition('"""\n\n')[2].splitlines()
    assert len([line for line in code if line]) <= 10


def test_the_bigram_model_is_asked_the_configurations_data(tmp_path: Path, library: Path) -> None:
    text = (HERE / "pylm.yaml").read_text().replace("SPLIT:", f"ROOT: {library}, SPLIT:").replace("EVERY: 10", "EVERY: 1")
    (tmp_path / "cfg.yaml").write_text(text.replace("CONTEXT: 128}", "CONTEXT: 6}"))
    out = call(tmp_path, "-m", "scepter_pylm.bigram", "cfg.yaml")
    assert re.fullmatch(r"\d\.\d{3} bits a character\n", out)
    held_out, train = (source_files(split, str(library)) for split in ("eval", "train"))
    assert float(out.split()[0]) == pytest.approx(_bits_by_hand(held_out, train), abs=6e-4)


def _bits_by_hand(held_out: list[Path], train: list[Path]) -> float:
    known, asked = (Counter(pair for path in part for pair in pairwise(path.read_text())) for part in (train, held_out))
    firsts = Counter(first for first, _ in known.elements())
    bits = sum(-math.log2((known[pair] + 1) / (firsts[pair[0]] + 97)) * number for pair, number in asked.items())
    return bits / asked.total()


def test_norms_and_biases_do_not_decay(tmp_path: Path) -> None:
    solver = run(tmp_path, "SOLVER.MAX_STEPS=2", "SOLVER.LR_SCHEDULER.WARMUP_STEPS=0", "SOLVER.EVAL_DATA=null")
    names = {id(parameter): name for name, parameter in solver.model.named_parameters()}
    groups = [({names[id(p)] for p in group["params"]}, group["weight_decay"]) for group in solver.optimizer.param_groups]
    block = ["norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias", "mix.bias", "out.bias", "feed.0.bias", "feed.2.bias"]
    weights = ["mix.weight", "out.weight", "feed.0.weight", "feed.2.weight"]
    assert groups == [
        ({"embed.weight", "places.weight", *(f"blocks.0.{name}" for name in weights)}, 0.1),
        ({"norm.weight", "norm.bias", *(f"blocks.0.{name}" for name in block)}, 0.0),
    ]


def test_the_rate_warms_up_and_falls_by_update(tmp_path: Path) -> None:
    run(tmp_path, "SOLVER.EVAL_DATA=null")
    rates = [row["values"]["pg0_lr"] for row in rows(tmp_path) if row["kind"] == "iter"]
    # five updates of two steps: 1/2 and 2/2 of 2e-3, then half a cosine from the second to the fifth, not below 1e-4
    assert rates == pytest.approx([1e-3] * 2 + [2e-3] * 4 + [1.5e-3] * 2 + [0.5e-3] * 2)


def test_a_resumed_run_ends_the_same_and_the_probe_changes_nothing(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    run(tmp_path / "plain", "SOLVER.EVAL_HOOKS=[]", "SOLVER.MODEL.SAMPLE=0")
    half = tmp_path / "whole/checkpoints/ldm_step-5.pth"  # within an accumulation window
    run(tmp_path / "half", resume=str(half))
    states = [read_checkpoint(str(tmp_path / name / "checkpoints/ldm_step-last.pth")) for name in ("whole", "plain", "half")]
    for state in states[1:]:
        assert all(torch.equal(value, state["model"][name]) for name, value in states[0]["model"].items())
        assert all(
            torch.equal(value, state["optimizer"]["state"][number][name])
            for number, moments in states[0]["optimizer"]["state"].items()
            for name, value in moments.items()
        )
        assert state["total_updates"] == states[0]["total_updates"] == 5
    assert rows(tmp_path / "plain") == rows(tmp_path / "whole")
    assert rows(tmp_path / "half") == [row for row in rows(tmp_path / "whole") if row["step"] > 5]


def test_what_is_held_out_is_never_trained_on(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[bool, set[str]] = {True: set(), False: set()}
    forward = CharGPT.forward

    def recording(self: CharGPT, text: torch.Tensor) -> dict[str, torch.Tensor]:
        seen[self.training] |= {decode(window) for window in text}
        return forward(self, text)

    monkeypatch.setattr(CharGPT, "forward", recording)
    roots = [f"SOLVER.{mode}_DATA.ROOT={library}" for mode in ("TRAIN", "EVAL")]
    more = ("SOLVER.MODEL.CONTEXT=6", "SOLVER.EVAL_DATA.EVERY=1", "SOLVER.MAX_STEPS=30")
    solver = run(tmp_path / "run", *roots, *more)  # a window is a whole file, and 30 steps are two passes
    assert solver.epoch > 1
    assert seen[True] == {path.read_text() for path in source_files("train", str(library))}
    assert seen[False] == {path.read_text() for path in source_files("eval", str(library))}


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [("TRAIN_DATA.SPLIT", "evla", "evla"), ("EVAL_DATA.EVERY", "0", "0"), ("MODEL.LAYERS", "0", "0")],
)
def test_a_wrong_key_is_reported_where_it_stands(key: str, value: str, found: str) -> None:
    with pytest.raises(ConfigError) as raised:
        scepter_core.load_config(HERE / "pylm.yaml", [f"SOLVER.{key}={value}"])
    assert f"SOLVER.{key}" in str(raised.value)
    assert found in str(raised.value)
