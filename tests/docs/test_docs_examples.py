"""The examples, as their files stand."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

import scepter_core


def test_the_regression_learns_the_curve(docs: Any, tmp_path: Path) -> None:
    solver = scepter_core.run(
        docs.root / "docs/examples/regression/regression.yaml", [f"SOLVER.WORK_DIR={tmp_path / 'run'}"]
    )
    assert solver.train_steps == 400
    assert solver.epoch_outputs["eval"]["mae"] < 0.05  # against a curve without noise
    files = sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir())
    assert files == ["ldm_step-400.pth", "ldm_step-best.pth"]


def test_the_regression_goes_where_its_folder_goes(docs: Any, tmp_path: Path) -> None:
    shutil.copytree(docs.root / "docs/examples/regression", tmp_path / "mine")
    config: Any = scepter_core.load_config(tmp_path / "mine/regression.yaml")
    assert [str(tmp_path / "mine/task.py")] == config.PLUGINS


def test_the_digits_package_knows_nothing_of_the_engine(docs: Any) -> None:
    sources = sorted((docs.root / "docs/examples/digits/src").rglob("*.py"))
    assert [path.name for path in sources] == ["__init__.py", "dataset.py", "model.py"]
    assert not any("import scepter" in path.read_text() or "from scepter_core" in path.read_text() for path in sources)


def test_the_gan_makes_points_at_every_spot_and_resumes_with_both_optimizers(docs: Any, tmp_path: Path) -> None:
    example = docs.root / "docs/examples/gan/gan.yaml"
    whole = scepter_core.run(example, [f"SOLVER.WORK_DIR={tmp_path / 'whole'}", "SOLVER.MAX_EPOCHS=20"])
    assert whole.epoch_outputs["eval"]["spots"] == 8
    assert whole.epoch_outputs["eval"]["near"] > 0.3
    assert whole.total_updates == whole.train_steps == 640
    half = tmp_path / "whole/checkpoints/ldm_step-320.pth"
    again = scepter_core.run(
        example, [f"SOLVER.WORK_DIR={tmp_path / 'again'}", "SOLVER.MAX_EPOCHS=20"], resume=str(half)
    )
    states = [solver.save_checkpoint() for solver in (whole, again)]
    for name in ("model", "critic_optimizer", "optimizer"):
        assert_equal(states[0][name], states[1][name])


def assert_equal(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    else:
        assert one == other
