"""What docs/resume.md says of a checkpoint, and its promise, on the regression example."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import scepter_core

PAGE = "docs/resume.md"
CONFIG = Path(__file__).parents[2] / "docs/examples/regression/regression.yaml"
SHORT = ["SOLVER.MAX_STEPS=120", "SOLVER.EVAL_INTERVAL=40"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The run that never stopped, and one that was saved in mid-epoch, with its resumption in another folder."""
    folder = tmp_path_factory.mktemp("runs")
    keys = [*SHORT, "SOLVER.TRAIN_HOOKS[CheckpointHook].SAVE_LAST=true", "SOLVER.TRAIN_HOOKS[LogHook].LOG_INTERVAL=7"]
    interval = "SOLVER.TRAIN_HOOKS[CheckpointHook].INTERVAL_STEPS=70"
    scepter_core.run(CONFIG, [*keys, interval, f"SOLVER.WORK_DIR={folder / 'whole'}"])
    middle = folder / "whole/checkpoints/ldm_step-70.pth"
    scepter_core.run(CONFIG, [*keys, f"SOLVER.WORK_DIR={folder / 'resumed'}"], resume=str(middle))
    return {"whole": folder / "whole", "resumed": folder / "resumed"}


def _state(folder: Path, label: str = "last") -> dict[str, Any]:
    state: dict[str, Any] = torch.load(folder / f"checkpoints/ldm_step-{label}.pth", weights_only=True)
    return state


def test_the_table_has_the_keys_of_a_checkpoint(docs: Any, runs: dict[str, Path]) -> None:
    (table,) = docs.tables(PAGE, "Files")
    written = [name for row in table for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(written) == sorted(_state(runs["whole"]))


def test_the_counts_of_a_checkpoint_are_of_what_is_completed(runs: dict[str, Path]) -> None:
    state = _state(runs["whole"], "70")
    assert (state["epoch"], state["iter"], state["total_iter"]["train"], state["total_updates"]) == (2, 20, 70, 70)
    position = state["position"]
    assert (position["mode"], position["in_epoch"], position["pending"]) == ("train", True, [])


def test_a_resumed_run_ends_in_the_same_weights(runs: dict[str, Path]) -> None:
    whole, resumed = _state(runs["whole"]), _state(runs["resumed"])
    assert whole["model"].keys() == resumed["model"].keys()
    assert all(torch.equal(whole["model"][name], resumed["model"][name]) for name in whole["model"])
    assert whole["metrics"]["epoch_outputs"] == resumed["metrics"]["epoch_outputs"]


def test_the_code_of_the_page(docs: Any, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/digits").symlink_to(runs["whole"])
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    block = docs.block_after(PAGE, "The keys of CheckpointHook are in")
    exec(compile(block.text, str(block), "exec"), names)
    assert list(names["weights"]) == ["layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"]


def test_the_stream_of_the_page_goes_on_where_it_was(docs: Any, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("".join(f"{number}\n" for number in range(11)))
    (tmp_path / "task.py").write_text(
        docs.block_after(PAGE, "Then a resume reads nothing again").text
        + "\n\nfrom scepter_core import MODELS\n\n\n@MODELS.register_class()\n"
        "class DocsResumeLine(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.w = torch.nn.Parameter(torch.zeros(()))\n\n"
        "    def forward(self, x):\n"
        "        return {'loss': self.w * (x * torch.rand(())).mean()}\n"
    )

    def config(folder: str, batch_size: int = 2, epochs: int = 2) -> dict[str, Any]:
        data = {"NAME": "Lines", "FILE": str(tmp_path / "lines"), "BATCH_SIZE": batch_size, "NUM_WORKERS": 2}
        hooks = [{"NAME": "BackwardHook"}, {"NAME": "CheckpointHook", "INTERVAL_STEPS": 1, "SAVE_LAST": True}]
        solver = {"NAME": "TrainValSolver", "WORK_DIR": str(tmp_path / folder), "MAX_EPOCHS": epochs, "TRAIN_DATA": data,
                  "MODEL": {"NAME": "DocsResumeLine"}, "OPTIMIZER": {"NAME": "SGD", "LEARNING_RATE": 1.0},
                  "TRAIN_HOOKS": hooks}  # fmt: skip
        return {"PLUGINS": [str(tmp_path / "task.py")], "ENV": {"DEVICE": "cpu"}, "SOLVER": solver}

    scepter_core.run(config("whole"))
    for step in range(1, 12):
        folder = f"from-{step}"
        scepter_core.run(config(folder), resume=str(tmp_path / f"whole/checkpoints/ldm_step-{step}.pth"))
        assert _state(tmp_path / folder)["model"] == _state(tmp_path / "whole")["model"]


def test_the_lines_of_a_changed_configuration(docs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = ["SOLVER.EVAL_INTERVAL=0", "SOLVER.MAX_STEPS=-1", f"SOLVER.WORK_DIR={tmp_path}", "SOLVER.LR_SCHEDULER=null"]
    hooks = "SOLVER.TRAIN_HOOKS=[{NAME: BackwardHook}, {NAME: CheckpointHook}]"
    overrides = [*keys, hooks, "SOLVER.TRAIN_DATA.SAMPLES=64"]
    scepter_core.run(CONFIG, [*overrides, "SOLVER.MAX_EPOCHS=10"])
    capsys.readouterr()
    changed = ["SOLVER.MAX_EPOCHS=20", "SOLVER.TRAIN_DATA.BATCH_SIZE=64"]
    scepter_core.run(CONFIG, [*overrides, *changed], resume=str(tmp_path / "checkpoints/ldm_step-2.pth"))
    said = [line.split(" ", 2)[2] for line in capsys.readouterr().out.splitlines() if "changed since" in line]
    assert said == docs.block_after(PAGE, "Those with which the run can differ").text.splitlines()


def test_a_finished_run_does_nothing_and_a_new_one_is_refused(runs: dict[str, Path]) -> None:
    work_dir = f"SOLVER.WORK_DIR={runs['whole']}"
    before = {path: path.stat().st_mtime_ns for path in runs["whole"].rglob("*")}
    assert scepter_core.run(CONFIG, [*SHORT, work_dir], resume="auto").nothing_to_do
    assert {path: path.stat().st_mtime_ns for path in runs["whole"].rglob("*")} == before
    with pytest.raises(scepter_core.ConfigError, match="--overwrite"):
        scepter_core.run(CONFIG, [*SHORT, work_dir])
