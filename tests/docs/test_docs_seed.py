"""docs/seed.md: every class, method, key, default and hook of SCEPTER's documentation, in its order, is there and is true."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from typing import Any

import pytest

import scepter_core
from scepter_core.config.section import keys_of
from tests.docs.conftest import ROOT

PAGE = "docs/seed.md"
KEYS = [
    *("FILE_SYSTEM", "WORK_DIR", "LOG_FILE", "RESUME_FROM", "MAX_EPOCHS", "ACCU_STEP", "NUM_FOLDS", "EVAL_INTERVAL", "EXTRA_KEYS"),
    *("TRAIN_DATA", "EVAL_DATA", "TEST_DATA", "TRAIN_HOOKS", "EVAL_HOOKS", "TEST_HOOKS", "MODEL", "OPTIMIZER", "LR_SCHEDULER"),
    "METRICS",
]
MEMBERS = [
    *("set_up_pre", "set_up", "construct_data", "construct_hook", "construct_model", "construct_metrics", "model_to_device"),
    *("init_opti", "solve", "solve_train", "solve_eval", "solve_test", "before_solve", "after_solve", "run_train", "run_eval"),
    *("run_test", "run_step_train", "run_step_eval", "run_step_test", "register_flops", "before_epoch", "before_all_iter"),
    *("before_iter", "after_epoch", "after_all_iter", "after_iter", "collect_log_vars"),
]
EVENTS = [
    *("before_solve", "after_solve", "before_epoch", "after_epoch", "before_all_iter", "after_all_iter", "before_iter"),
    "after_iter",
]
HOOKS = {
    "CheckpointHook": ["PRIORITY", "INTERVAL", "SAVE_NAME_PREFIX", "SAVE_LAST", "SAVE_BEST", "SAVE_BEST_BY"],
    "BackwardHook": ["PRIORITY", "GRADIENT_CLIP", "ACCUMULATE_STEP", "EMPTY_CACHE_STEP"],
    "LogHook": ["PRIORITY", "SHOW_GPU_MEM", "LOG_INTERVAL"],
    "TensorboardLogHook": ["PRIORITY", "LOG_DIR", "LOG_INTERVAL"],
    "LrHook": ["PRIORITY", "WARMUP_FUNC", "WARMUP_EPOCHS", "WARMUP_START_LR", "SET_BY_EPOCH"],
    "DistSamplerHook": ["PRIORITY"],
    "ProbeDataHook": ["PRIORITY", "PROB_INTERVAL"],
    "SafetensorsHook": ["PRIORITY", "INTERVAL", "SAVE_NAME_PREFIX"],
}


def _words(docs: Any, section: str) -> list[list[str]]:
    """The rows of the table under this heading, without its head."""
    text = re.split(rf"^#+ {section}$", docs.text(PAGE), maxsplit=1, flags=re.MULTILINE)[1]
    rows = [line for line in re.split(r"^#", text, maxsplit=1, flags=re.MULTILINE)[0].splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows[2:]]


@cache
def _tests_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _shows(test: str) -> None:
    path, _, name = test.partition("::")
    assert name.startswith("test_")
    assert name in _tests_in(path), test


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else str(value)


def test_everything_is_there_in_order(docs: Any) -> None:
    assert [row[0] for row in _words(docs, "Solvers")] == ["SOLVERS", "BaseSolver", "TrainValSolver", "__init__"]
    assert [row[0] for row in _words(docs, "Configs")] == KEYS
    assert [row[0] for row in _words(docs, "Members")] == MEMBERS
    events = [f"Hook.{name}" for name in EVENTS]
    assert [row[0] for row in _words(docs, "Hooks")] == ["HOOKS", "Hook", "Hook.__init__", *events]
    titles = [line[4:] for line in docs.text(PAGE).splitlines() if line.startswith("### ")]
    assert titles == ["Configs", "Members", *HOOKS]


@pytest.mark.parametrize("section", ["Solvers", "Members", "Hooks"])
def test_what_is_named_is_there(docs: Any, section: str) -> None:
    for _, where, test, _ in _words(docs, section):
        module, _, path = where.partition(":")
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        _shows(test)


def test_the_keys_of_a_solver(docs: Any) -> None:
    model = scepter_core.SolverConfig
    for key, default, test, _ in _words(docs, "Configs"):
        assert default == _default(model.model_fields[keys_of(model)[key]]), key
        _shows(test)


@pytest.mark.parametrize("hook", HOOKS)
def test_the_keys_of_a_hook(docs: Any, hook: str) -> None:
    rows = _words(docs, hook)
    assert [row[0] for row in rows] == HOOKS[hook]
    model: Any = scepter_core.HOOKS.model(hook)
    place = next(line for line in docs.text(PAGE).splitlines() if line.startswith("`scepter_") and f":{hook}`" in line)
    module, _, name = place.split("`")[1].partition(":")
    assert getattr(import_module(module), name) is scepter_core.HOOKS.get(hook)
    for key, default, test, _ in rows:
        assert default == _default(model.model_fields[keys_of(model)[key]]), key
        _shows(test)
