"""What docs/configuration.md says of keys and values, compared with the models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import scepter_core
from scepter_core.config.section import keys_of
from scepter_core.runconfig import EnvConfig, RunConfig
from scepter_core.sections import (
    HookConfig,
    LoaderConfig,
    MetricKeys,
    OptimizerKeys,
    ParamGroupConfig,
    SchedulerKeys,
    SolverConfig,
)

PAGE = "docs/configuration.md"
TABLES = [
    ("Top level", 0, RunConfig),
    ("ENV", 0, EnvConfig),
    ("SOLVER", 0, SolverConfig),
    ("TRAIN_DATA, EVAL_DATA, TEST_DATA", 0, LoaderConfig),
    ("OPTIMIZER", 0, OptimizerKeys),
    ("OPTIMIZER", 1, ParamGroupConfig),
    ("LR_SCHEDULER", 0, SchedulerKeys),
    ("METRICS", 0, MetricKeys),
    ("Hooks", 0, HookConfig),
]


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "`null`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if isinstance(value, str | int | float | list) else "`{}`"


@pytest.mark.parametrize(("section", "place", "model"), TABLES, ids=[table[2].__name__ for table in TABLES])
def test_a_table_has_the_models_keys_and_defaults(docs: Any, section: str, place: int, model: type[Any]) -> None:
    rows = docs.tables(PAGE, section)[place]
    written = [(row[0], row[1]) for row in rows]
    assert written == [(f"`{key}`", _default(model.model_fields[name])) for key, name in keys_of(model).items()]
    assert all(len(row) == 3 and row[2] for row in rows)


@pytest.mark.parametrize("plugin", ["backward", "lr", "log", "checkpoint"])
def test_the_table_of_a_plugin_has_the_hooks_keys(docs: Any, plugin: str) -> None:
    name = {"backward": "BackwardHook", "lr": "LrHook", "log": "LogHook", "checkpoint": "CheckpointHook"}[plugin]
    lines = docs.text(f"plugins/scepter-{plugin}/README.md").split("| key | default |", 1)[1].splitlines()[2:]
    keys = [line.split("`")[1] for line in lines[: lines.index("")]]
    model: Any = scepter_core.HOOKS.model(name)
    assert sorted(keys) == sorted(set(keys_of(model)) - {"NAME"})


VALUES = [
    ("MODEL.WIDTH", "16", 16),
    ("MODEL.WIDTH", "2.0", 2),
    ("MODEL.WIDTH", "0o17", 15),
    ("MODEL.WIDTH", "0x1f", 31),
    ("MODEL.WIDTH", "", 32),
    ("OPTIMIZER.LEARNING_RATE", "1e-3", 0.001),
    ("OPTIMIZER.AMSGRAD", "yes", True),
    ("OPTIMIZER.AMSGRAD", "off", False),
    ("TRAIN_DATA.SHUFFLE", "1", True),
    ("TRAIN_HOOKS[LrHook].WARMUP_FUNC", "null", None),
    ("TRAIN_HOOKS[LrHook].WARMUP_FUNC", "", "linear"),
    ("TRAIN_HOOKS[CheckpointHook].SAVE_NAME_PREFIX", "1e5", "1e5"),
]


@pytest.mark.parametrize(("key", "written", "value"), VALUES)
def test_values_mean_what_the_page_says(docs: Any, key: str, written: str, value: object) -> None:
    config: Any = scepter_core.load_config(docs.root / "docs/examples/digits/digits.yaml", [f"SOLVER.{key}={written}"])
    section, _, name = key.rpartition(".")
    found = {
        "MODEL": config.SOLVER.MODEL,
        "OPTIMIZER": config.SOLVER.OPTIMIZER,
        "TRAIN_DATA": config.SOLVER.TRAIN_DATA,
        **{f"TRAIN_HOOKS[{hook.NAME}]": hook for hook in config.SOLVER.TRAIN_HOOKS},
    }[section][name]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("written", ["2.7", '"3"', "true"])
def test_what_is_no_integer_is_refused(docs: Any, written: str) -> None:
    with pytest.raises(scepter_core.ConfigError, match=r"SOLVER\.MODEL\.WIDTH: must be an integer"):
        scepter_core.load_config(docs.root / "docs/examples/digits/digits.yaml", [f"SOLVER.MODEL.WIDTH={written}"])


def test_references_and_inheritance(docs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNS", "/elsewhere")
    monkeypatch.delenv("SEED", raising=False)
    (tmp_path / "base.yaml").write_text((docs.root / "docs/examples/digits/digits.yaml").read_text())
    references = docs.blocks(PAGE, "yaml")[1].text
    (tmp_path / "references.yaml").write_text("_BASE: base.yaml\n" + references)
    config: Any = scepter_core.load_config(tmp_path / "references.yaml")
    assert config.ENV.SEED == 0
    assert config.SOLVER.WORK_DIR.startswith("/elsewhere/20")
    assert config.SOLVER.LR_SCHEDULER.T_MAX == 8
    assert config.META["note"] == "${ is a dollar sign and a brace"
    dumped = scepter_core.dump_config(config)
    assert "${env:RUNS,./runs}" in dumped
    assert "${now:" not in dumped
    (tmp_path / "inherits.yaml").write_text(docs.blocks(PAGE, "yaml")[2].text)
    inherited: Any = scepter_core.load_config(tmp_path / "inherits.yaml").SOLVER
    assert (inherited.MAX_EPOCHS, inherited.LR_SCHEDULER) == (3, None)
    assert inherited.MODEL.WIDTH == 24


def test_another_name_keeps_the_keys_of_the_kind_only(docs: Any, tmp_path: Path) -> None:
    digits = (docs.root / "docs/examples/digits/digits.yaml").read_text(encoding="utf-8")
    adam = "{NAME: AdamW, LEARNING_RATE: 3e-3"
    assert digits.count(adam) == 1
    (tmp_path / "base.yaml").write_text(digits.replace(adam, adam + ", BETAS: [0.8, 0.9]"), encoding="utf-8")
    (tmp_path / "cfg.yaml").write_text("_BASE: base.yaml\nSOLVER: {OPTIMIZER: {NAME: SGD, MOMENTUM: 0.9}}\n")
    config: Any = scepter_core.load_config(tmp_path / "cfg.yaml")
    assert (config.SOLVER.OPTIMIZER.LEARNING_RATE, config.SOLVER.OPTIMIZER.MOMENTUM) == (0.003, 0.9)


def test_the_table_of_scepters_schedulers_has_their_keys_and_defaults(docs: Any) -> None:
    rows = docs.tables(PAGE, "LR_SCHEDULER")[1]
    assert [row[0].strip("`") for row in rows] == ["WarmupToConstantLR", "StepAnnealingLR", "LinoPolyLR"]
    for name, written, _ in rows:
        model: Any = scepter_core.LR_SCHEDULERS.model(name.strip("`"))
        fields = {key: model.model_fields[field] for key, field in keys_of(model).items()}
        for key in fields.keys() - {"NAME", "UNIT", "MONITOR"}:
            value = None if fields[key].is_required() else fields[key].get_default()
            default = f" (`{value}`" if isinstance(value, str) else f" ({value})"
            assert f"`{key}`" + (default if value is not None else "") in written
    assert scepter_core.LR_SCHEDULERS.model("StepAnnealingLR").model_fields["unit"].get_default() == "update"
    assert scepter_core.LR_SCHEDULERS.model("LinoPolyLR").model_fields["unit"].get_default() == "epoch"
