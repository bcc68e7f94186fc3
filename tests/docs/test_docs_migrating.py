"""What docs/migrating-from-scepter.md says, tried."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import scepter_core
from scepter_core import HOOKS
from scepter_core.runconfig import EnvConfig
from scepter_core.sections import LoaderConfig, LocalFsConfig, SchedulerKeys, SolverConfig

PAGE = "docs/migrating-from-scepter.md"
TASKS = Path(__file__).parents[1] / "tasks.py"
SECTIONS = {"SOLVER": SolverConfig, "ENV": EnvConfig, "LR_SCHEDULER": SchedulerKeys, "FILE_SYSTEM": LocalFsConfig}


@pytest.fixture(scope="module")
def rows(docs: Any) -> list[tuple[str, str, str]]:
    """The table of keys: section, `KEY: value`, what becomes of it."""
    (table,) = docs.tables(PAGE, "Keys")
    return [(section.strip("`"), key.strip("`"), here) for section, key, here in table]


def _with(tmp_path: Path, *rows: tuple[str, str]) -> dict[str, Any]:
    """A small run's configuration with keys, `KEY: value` texts, in sections."""
    hooks = {name: {"NAME": name} for name in ("BackwardHook", "LrHook")}
    hooks["LrHook"]["WARMUP_FUNC"] = None
    scheduler = {"NAME": "StepLR", "STEP_SIZE": 1}
    system = {"NAME": "LocalFs"}
    env: dict[str, Any] = {"DEVICE": "cpu"}
    solver: dict[str, Any] = {
        "NAME": "TrainValSolver",
        "WORK_DIR": str(tmp_path / "run"),
        "MAX_EPOCHS": 1,
        "FILE_SYSTEM": [system],
        "TRAIN_DATA": {"NAME": "Floats", "VALUES": [1, 1]},
        "MODEL": {"NAME": "GradProbe"},
        "OPTIMIZER": {"NAME": "SGD", "LEARNING_RATE": 1.0},
        "LR_SCHEDULER": scheduler,
    }
    places = {"SOLVER": solver, "ENV": env, "LR_SCHEDULER": scheduler, "FILE_SYSTEM": system}
    for section, text in rows:
        place = places.get(section)
        if place is None:
            place = hooks.setdefault(section, {"NAME": section})
        place.update(yaml.safe_load(text))
    return {"PLUGINS": [str(TASKS)], "ENV": env, "SOLVER": {**solver, "TRAIN_HOOKS": list(hooks.values())}}


def test_the_old_imports_become_new_ones(docs: Any) -> None:
    imports = [[cell.strip("`") for cell in row] for row in docs.tables(PAGE, "Imports")[0]]
    assert all(old.startswith("from scepter.modules.") for old, _ in imports)
    for _, new in imports:
        exec(new, {})
    old_hook, new_hook = (block.text for block in docs.blocks(PAGE, "python"))
    for old, new in imports:
        old_hook = old_hook.replace(old + "\n", new + "\n")
    assert old_hook == new_hook


def test_the_hook_of_the_page_runs(docs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old_hook.py").write_text(docs.blocks(PAGE, "python")[1].text, encoding="utf-8")
    config = _with(tmp_path, ("LossWatchHook", "{INTERVAL: 2, LIMIT: -9}"), ("SOLVER", "MAX_EPOCHS: 2"))
    config["PLUGINS"].append(str(tmp_path / "old_hook.py"))
    before = dict(HOOKS._registered)
    try:
        solver = scepter_core.run(config)
    finally:
        HOOKS._registered = before
    hook = solver.hooks_dict["train"][-1]
    assert (hook.priority, hook.interval, hook.limit) == (150, 2, -9)
    lines = [line.split("INFO")[1].strip() for line in capsys.readouterr().out.splitlines() if " steps" in line]
    assert lines == ["loss -1.000 after 2 steps", "loss -2.100 after 4 steps"]
    assert yaml.safe_load(type(hook).get_config_template()) == {
        "HOOK": [{"NAME": "LossWatchHook", "PRIORITY": 150, "INTERVAL": 10, "LIMIT": None}]
    }
    assert "# warn above it" in type(hook).get_config_template()


def test_every_key_that_is_taken_with_a_notice_stands_in_the_table(rows: list[tuple[str, str, str]]) -> None:
    listed = {(section, key.partition(":")[0]) for section, key, here in rows if here.startswith("notice")}
    models: dict[str, Any] = {**SECTIONS, **{name: HOOKS.model(name) for name in HOOKS.names()}}
    there = {(section, key) for section, model in models.items() for key in getattr(model, "taken_with_notice", ())}
    assert listed == there
    assert LoaderConfig.taken_with_notice == {}
    assert all(re.match(r"acts|notice|error", here) for _, _, here in rows)


def test_keys_with_a_notice_are_said_once_each_and_nothing_else_happens(
    rows: list[tuple[str, str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noticed = [(section, key) for section, key, here in rows if here.startswith("notice")]
    with_notices = scepter_core.run(_with(tmp_path, *noticed))
    said = capsys.readouterr().out
    for section, text in noticed:
        key = text.partition(":")[0]
        place = rf"SOLVER\.TRAIN_HOOKS\[\d\]\.{key}" if section.endswith("Hook") else rf"{section}\S*\.{key}"
        assert len(re.findall(rf"INFO +(SOLVER\.)?{place} is taken and does nothing: \w", said)) >= 1, key
    assert said.count("is taken and does nothing") == len(noticed)
    without = scepter_core.run(_with(tmp_path / "b", *((section, "{}") for section, _ in noticed)))
    assert with_notices.model.w.item() == without.model.w.item()
    written = (tmp_path / "run/config.yaml").read_text(encoding="utf-8")
    assert not any(text.partition(":")[0] + ":" in written.split() for _, text in noticed if "SAVE_" not in text)


def test_empty_keys_are_taken_in_silence(
    rows: list[tuple[str, str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = [(section, key.partition(":")[0] + ":") for section, key, here in rows if not here.startswith("error")]
    scepter_core.run(_with(tmp_path, *empty))
    assert "is taken and does nothing" not in capsys.readouterr().out


def test_keys_that_are_errors_are_located(rows: list[tuple[str, str, str]], tmp_path: Path) -> None:
    errors = [(section, key) for section, key, here in rows if here.startswith("error")]
    assert errors
    for section, text in errors:
        with pytest.raises(scepter_core.ConfigError, match=rf"{section}\.{text.partition(':')[0]}"):
            scepter_core.load_config(_with(tmp_path, (section, text)))


def test_keys_that_act_are_read(rows: list[tuple[str, str, str]], tmp_path: Path) -> None:
    acting = [(section, key) for section, key, here in rows if here.startswith("acts")]
    config: Any = scepter_core.load_config(_with(tmp_path, *acting))
    read = {"SOLVER": config.SOLVER, "ENV": config.ENV, **{hook.NAME: hook for hook in config.SOLVER.TRAIN_HOOKS}}
    for section, text in acting:
        ((key, value),) = yaml.safe_load(text).items()
        found = read[section]
        if key == "FILE_SYSTEM":
            assert found[key].NAME == "LocalFs"
        else:
            assert found[key] == value
            assert key != "INTERVAL" or found["LOG_INTERVAL"] == value


@pytest.mark.parametrize("hook", ["LogHook", "TensorboardLogHook"])
def test_two_names_of_one_key_must_agree(hook: str, tmp_path: Path) -> None:
    both = _with(tmp_path, (hook, "{INTERVAL: 5, LOG_INTERVAL: 5}"))
    assert scepter_core.load_config(both)
    with pytest.raises(scepter_core.ConfigError, match="INTERVAL and LOG_INTERVAL are one key under two names"):
        scepter_core.load_config(_with(tmp_path, (hook, "{INTERVAL: 5, LOG_INTERVAL: 6}")))


def test_the_yaml_of_the_page_is_what_it_says(docs: Any, tmp_path: Path) -> None:
    task = docs.root / "docs/examples/regression/task.py"
    data = "{NAME: NoisySine, SAMPLES: 64, BATCH_SIZE: 32}"
    (tmp_path / "base.yaml").write_text(
        f"SOLVER: {{NAME: TrainValSolver, TRAIN_DATA: {data}, MODEL: {{NAME: Curve}}}}\n"
    )
    (tmp_path / "cfg.yaml").write_text("_BASE: base.yaml\n" + docs.blocks(PAGE, "yaml")[0].text, encoding="utf-8")
    config: Any = scepter_core.load_config(tmp_path / "cfg.yaml", plugins=[str(task)])
    assert config.SOLVER.OPTIMIZER.LEARNING_RATE == 0.0005
    assert (config.SOLVER.LR_SCHEDULER.UNIT, config.SOLVER.LR_SCHEDULER.TOTAL_STEPS) == ("update", "auto")
    assert config.SOLVER.RESUME_FROM is None
    assert config.META == {"AUTHOR": "kept, and not read"}
