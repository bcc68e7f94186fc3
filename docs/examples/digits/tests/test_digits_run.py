"""The example as a user runs it: with the hooks that digits.yaml lists installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import scepter_core

CONFIG = Path(__file__).parents[1] / "digits.yaml"


def test_the_example_reaches_97_percent(tmp_path: Path) -> None:
    solver = scepter_core.run(CONFIG, [f"SOLVER.WORK_DIR={tmp_path / 'run'}"])
    assert solver.epoch_outputs["test"]["acc"] >= 0.97
    files = sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir())
    assert files == [f"ldm_step-{label}.pth" for label in (160, 320, "best", "last")]
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["mode"] == "test"
    assert rows[-1]["values"] == solver.epoch_outputs["test"]


def test_a_wrong_split_is_reported_where_it_stands() -> None:
    with pytest.raises(scepter_core.ConfigError) as raised:
        scepter_core.load_config(CONFIG, ["SOLVER.TEST_DATA.SPLIT=tset"])
    assert "SOLVER.TEST_DATA.SPLIT" in str(raised.value)
    assert "tset" in str(raised.value)
