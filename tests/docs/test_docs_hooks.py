"""The code of docs/hooks.md, run as it stands there."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

import scepter_core
from scepter_core import DATASETS, HOOKS, MODELS

PAGE = "docs/hooks.md"


@pytest.fixture(scope="module")
def code(docs: Any) -> dict[str, Any]:
    """The names that the page's Python blocks define, run in order; what they register is taken back afterwards."""
    registries = (HOOKS, DATASETS, MODELS)
    before = [dict(registry._registered) for registry in registries]
    names: dict[str, Any] = {"__name__": "docs_hooks_page"}
    for block in docs.blocks(PAGE, "python"):
        exec(compile(block.text, str(block), "exec"), names)
    for hook in ("NormHook", "NormPrinter", "NeedsEval", "TimeAfterIter"):
        HOOKS.register_class()(names[hook])
    yield names
    for registry, entries in zip(registries, before, strict=True):
        registry._registered = entries


def _config(tmp_path: Path, **keys: Any) -> dict[str, Any]:
    solver = {
        "NAME": "TrainValSolver",
        "WORK_DIR": str(tmp_path),
        "MAX_EPOCHS": 2,
        "TRAIN_DATA": {"NAME": "Ones", "BATCH_SIZE": 4},
        "MODEL": {"NAME": "Line"},
        "OPTIMIZER": {"NAME": "SGD", "LEARNING_RATE": 0.1},
        "TRAIN_HOOKS": [{"NAME": "BackwardHook"}],
    }
    return {"SOLVER": {**solver, **keys}}


def test_the_pages_test_passes(code: dict[str, Any], tmp_path: Path) -> None:
    code["test_patience_counts_evals_without_improvement"](tmp_path)


def test_the_state_of_the_first_hook_survives_a_resume(code: dict[str, Any], tmp_path: Path) -> None:
    hooks = [{"NAME": "BackwardHook"}, {"NAME": "PatienceHook"}, {"NAME": "CheckpointHook", "SAVE_LAST": True}]
    config = _config(tmp_path, TRAIN_HOOKS=hooks, EVAL_DATA={"NAME": "Ones", "BATCH_SIZE": 4})
    before = scepter_core.run(config).hooks_dict["train"][1]
    config["SOLVER"]["MAX_EPOCHS"] = 3
    after = scepter_core.run(config, resume=str(tmp_path / "checkpoints/ldm_step-last.pth")).hooks_dict["train"][1]
    assert 0 < after.best < before.best < float("inf")


def test_a_misspelt_event_is_an_error(code: dict[str, Any], tmp_path: Path) -> None:
    @HOOKS.register_class()
    class MisspeltHook(scepter_core.Hook):
        def befor_iter(self, solver: Any) -> None:
            """Free: no event begins so."""

        def before_itr(self, solver: Any) -> None:
            """Like an event, and none."""

    with pytest.raises(scepter_core.ConfigError, match="before_iter"):
        scepter_core.run(_config(tmp_path, TRAIN_HOOKS=[{"NAME": "MisspeltHook"}]))


def test_check_reports_at_the_hook(code: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(scepter_core.ConfigError) as raised:
        scepter_core.run(_config(tmp_path, TRAIN_HOOKS=[{"NAME": "NeedsEval"}]))
    assert str(raised.value).startswith("SOLVER.TRAIN_HOOKS[0].NAME: needs an eval: give SOLVER.EVAL_DATA")


def test_the_wrapper_measures_the_other_hooks(code: dict[str, Any], tmp_path: Path) -> None:
    solver = scepter_core.run(_config(tmp_path, TRAIN_HOOKS=[{"NAME": "BackwardHook"}, {"NAME": "TimeAfterIter"}]))
    assert solver.hooks_dict["train"][1].seconds > 0


def test_an_event_of_ones_own(code: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quiet = logging.Logger("quiet")
    scepter_core.run(_config(tmp_path / "a", TRAIN_HOOKS=[{"NAME": "NormHook"}, {"NAME": "NormPrinter"}]), logger=quiet)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["epoch 1", "epoch 2"]
    assert all(re.fullmatch(r"epoch \d: \d\.\d{3}", line) for line in lines)
    # marked optional: without the hook that brings the event it is simply never called
    scepter_core.run(_config(tmp_path / "b", TRAIN_HOOKS=[{"NAME": "NormPrinter"}]), logger=quiet)
    assert capsys.readouterr().out == ""


def test_a_hook_of_scepter(code: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = {"NAME": "StepCounter", "INTERVAL": 3, "ANYTHING": {"AT": "all"}, "WARN": None}
    solver = scepter_core.run(_config(tmp_path, TRAIN_HOOKS=[{"NAME": "BackwardHook"}, section]))
    hook = solver.hooks_dict["train"][1]
    assert (hook.priority, hook.interval, hook.warn) == (250, 3, False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("INFO")[1].strip() for line in lines if "steps" in line] == ["3 steps"]


def test_the_entry_point_groups_are_all_named(docs: Any) -> None:
    from scepter_core.discovery import GROUPS

    named = set(re.findall(r"`(scepter\.[a-z_]+)`", docs.text(PAGE)))
    assert named == set(GROUPS.values())
