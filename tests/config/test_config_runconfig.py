"""Whole configurations: loaded, checked across sections, and written back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from scepter_core import ConfigError, EnvConfig, RunConfig, dump_config, load_config
from scepter_core.config.dump import dump
from scepter_core.config.section import FreeSection
from scepter_core.discovery import forget_local
from scepter_core.registry import ENGINES, HOOKS
from scepter_core.runconfig import absolute_plugin, from_python

TASK = """
from pathlib import Path
from typing import Any, Literal
from pydantic import Field
from scepter_core import DATASETS, HOOKS, MODELS, Hook, HookConfig

@HOOKS.register_class()
class WarnHook(Hook):
    class Config(HookConfig):
        priority: int = 50
        warn_above: float = Field(100.0, gt=0)
        prefix: str = "x"
        mode: Literal["a", "b"] | None = None

    @classmethod
    def check(cls, cfg, run):
        if cfg.warn_above > run.ENV.SEED + 1000:
            yield "WARN_ABOVE", "must not exceed ENV.SEED + 1000"

@HOOKS.register_class()
class FreeHook(Hook):
    def __init__(self, cfg, logger=None):
        super().__init__(cfg, logger)

@HOOKS.register_class()
class OneHook(Hook):
    role = "one"

@HOOKS.register_class()
class OtherHook(Hook):
    role = "one"

@DATASETS.register_class()
class Numbers:
    def __init__(self, n: int, root: Path = Path("data"), scale: float = 1, kind: type = dict, free: Any = None): ...

@MODELS.register_function()
def net(hidden: int = 64, betas: tuple[float, float] = (0.9, 0.99)): ...
"""

CFG = """\
PLUGINS: [./task.py]
ENV: {SEED: 3, DEVICE: cpu}
META: {TOKEN: "${env:SECRET_TOKEN,none}", WHEN: on, ANY: [1, {A: 1e-3}, "${SOLVER.MAX_EPOCHS}"]}
SOLVER:
  NAME: TrainValSolver
  WORK_DIR: runs/${now:%Y}
  LOG_FILE:
  RESUME_FROM: None
  MAX_EPOCHS: 2.0
  TRAIN_DATA: {NAME: Numbers, N: 5, BATCH_SIZE: 4, ROOT: "${SOLVER.WORK_DIR}/data", FREE: {X: [on, 010]}}
  EVAL_DATA: {NAME: Numbers, N: 5}
  MODEL: {NAME: net, BETAS: [1, 2]}
  TRAIN_HOOKS:
    - {NAME: WarnHook, WARN_ABOVE: 1e-3, PREFIX: 1e5, MODE: null}
    - {NAME: FreeHook, DEPTH: 2, EMPTY: , TEXT: "no", SUB: {A: [1]}}
"""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("task.py").write_text(TASK)
    Path("cfg.yaml").write_text(CFG)
    yield
    forget_local([])


def report(*overrides: str, path: str = "cfg.yaml") -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value)


def first_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("    ")]


class TestLoading:
    def test_a_whole_file(self) -> None:
        cfg = load_config("cfg.yaml")
        solver: Any = cfg.SOLVER
        assert (cfg.ENV.SEED, cfg.env.device, cfg.META["WHEN"], cfg.META["ANY"]) == (
            3,
            "cpu",
            "on",
            [1, {"A": 0.001}, 2],
        )
        assert (solver.MAX_EPOCHS, solver.LOG_FILE, solver.RESUME_FROM) == (2, "std_log.txt", None)
        assert type(solver.MAX_EPOCHS) is int
        assert (solver.TRAIN_DATA.BATCH_SIZE, solver.TRAIN_DATA.N, solver.TEST_DATA) == (4, 5, None)
        assert solver.TRAIN_DATA.FREE == {"X": ["on", 10]}
        warn, free = solver.TRAIN_HOOKS
        assert (warn.PREFIX, warn.WARN_ABOVE, warn.PRIORITY, warn.get("MODE", 1)) == ("1e5", 0.001, 50, None)
        assert (free.DEPTH, free.EMPTY, free.get("EMPTY", 1), free.TEXT, free.SUB.A) == (
            2,
            None,
            1,
            "no",
            [1],
        )

    def test_sections_know_the_run_they_belong_to(self) -> None:
        cfg = load_config("cfg.yaml")
        sections = [
            cfg,
            cfg.env,
            cfg.SOLVER,
            cfg.SOLVER.MODEL,
            cfg.SOLVER.TRAIN_HOOKS[1],
            cfg.SOLVER.TRAIN_HOOKS[1].SUB,
        ]
        assert [section._root is cfg for section in sections] == [True] * 6

    def test_a_dict_is_read_as_a_file_is(self) -> None:
        values = {"PLUGINS": ["./task.py"], "ENV": {"SEED": 4}, "META": "${ENV.SEED}",
                  "SOLVER": {"NAME": "TrainValSolver", "WORK_DIR": "x", "MODEL": {"NAME": "net", "HIDDEN": 3}}}  # fmt: skip
        cfg = from_python(values, ["SOLVER.MAX_EPOCHS=5"])
        assert (cfg.META, cfg.SOLVER.MODEL.HIDDEN, cfg.SOLVER.MAX_EPOCHS) == (4, 3, 5)
        assert load_config(values, ["SOLVER.MAX_EPOCHS=5"]) == cfg
        values["SOLVER"]["MODEL"]["HIDDEN"] = "3"  # type: ignore[index]
        with pytest.raises(ConfigError, match=r"^SOLVER.MODEL.HIDDEN: must be an integer"):
            from_python(values)

    def test_all_problems_of_all_sections_at_once(self) -> None:
        text = report(
            "ENV.SEED=-1", "ENV.DEVICE=tpu", "SOLVER.MAX_EPOCH=3", "SOLVER.TRAIN_HOOKS[0].INTERAVL=2", "TOP=1",
            "SOLVER.TRAIN_HOOKS[WarnHook].WARN_ABOVE=0", "SOLVER.MODEL.NAME=nett", "SOLVER.TRAIN_DATA.N=2.7",
        )  # fmt: skip
        assert sorted(first_lines(text)) == sorted([
            'override "ENV.SEED=-1": ENV.SEED: must be >= 0',
            'override "ENV.DEVICE=tpu": ENV.DEVICE: must be cpu, cuda, cuda:N, mps or auto',
            'override "SOLVER.MAX_EPOCH=3": SOLVER.MAX_EPOCH: unknown key',
            'override "SOLVER.TRAIN_HOOKS[0].INTERAVL=2": SOLVER.TRAIN_HOOKS[0].INTERAVL: unknown key',
            'override "TOP=1": TOP: unknown key',
            'override "SOLVER.TRAIN_HOOKS[WarnHook].WARN_ABOVE=0": SOLVER.TRAIN_HOOKS[0].WARN_ABOVE: must be > 0',
            'override "SOLVER.MODEL.NAME=nett": SOLVER.MODEL.NAME: unknown model nett',
            'override "SOLVER.TRAIN_DATA.N=2.7": SOLVER.TRAIN_DATA.N: must be an integer',
        ])  # fmt: skip
        assert "did you mean MAX_EPOCHS?" in text
        assert "did you mean net?" in text

    def test_problems_stand_in_the_order_of_the_file(self) -> None:
        text = (
            CFG.replace("SEED: 3", "SEED: x")
            .replace("MAX_EPOCHS: 2.0", "MAX_EPOCH: 2")
            .replace("N: 5}", "N: y}")
        )
        text = text.replace('"${SOLVER.MAX_EPOCHS}"', "2")
        Path("bad.yaml").write_text(text)
        assert first_lines(report(path="bad.yaml")) == [
            "bad.yaml:2:13: ENV.SEED: must be an integer",
            "bad.yaml:9:3: SOLVER.MAX_EPOCH: unknown key",
            "bad.yaml:11:33: SOLVER.EVAL_DATA.N: must be an integer",
        ]

    def test_a_file_without_a_solver(self) -> None:
        Path("cfg.yaml").write_text("ENV:\nMETA: 1\n")
        assert (
            report() == "cfg.yaml:1:1: SOLVER: required key is missing\n    expected: a section with a NAME"
        )

    def test_a_changed_name_keeps_what_every_thing_of_the_kind_has(self) -> None:
        cfg = load_config(
            "cfg.yaml", ["SOLVER.TRAIN_HOOKS[WarnHook].NAME=OneHook", "SOLVER.TRAIN_HOOKS[0].PRIORITY=7"]
        )
        assert (cfg.SOLVER.TRAIN_HOOKS[0].NAME, cfg.SOLVER.TRAIN_HOOKS[0].PRIORITY) == ("OneHook", 7)
        Path("task.py").write_text(TASK + "\nfrom scepter_core import *\nclass Mine(TrainValSolver):\n"
                                   "    class Config(SolverConfig):\n        extra: int = 1\nSOLVERS.register_class()(Mine)\n")  # fmt: skip
        mine = load_config("cfg.yaml", ["SOLVER.NAME=Mine", "SOLVER.EXTRA=2"]).SOLVER
        assert (mine.EXTRA, mine.MAX_EPOCHS, mine.TRAIN_DATA.N) == (2, 2, 5)


class TestPlugins:
    def test_paths_start_at_the_file_that_names_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert load_config("../cfg.yaml").plugins == [str(tmp_path / "task.py")]
        Path("child.yaml").write_text("_BASE: ../cfg.yaml\n")
        assert load_config("child.yaml").plugins == [str(tmp_path / "task.py")]
        text = report(
            "PLUGINS=[./task.py]", path="../cfg.yaml"
        )  # an override's paths are the current folder's
        assert f"no such file: {tmp_path}/elsewhere/task.py" in text
        assert text.startswith('override "PLUGINS=[./task.py]": PLUGINS[0]: ')

    def test_callers_plugins_come_beside_those_of_the_file(self, tmp_path: Path) -> None:
        Path("more.py").write_text(
            "from scepter_core import MODELS\n@MODELS.register_function()\ndef other(): ...\n"
        )
        cfg = load_config("cfg.yaml", ["SOLVER.MODEL.NAME=other"], plugins=["more.py", "./task.py"])
        assert cfg.plugins == [str(tmp_path / "task.py"), str(tmp_path / "more.py")]
        assert f"- {tmp_path}/more.py" in dump_config(cfg)

    def test_a_module_that_fails_is_located_with_its_cause(self) -> None:
        Path("task.py").write_text("import no_such_module\n")
        Path("cfg.yaml").write_text(CFG.replace("[./task.py]", "[./none.py, ./task.py]"))
        lines = first_lines(report())
        assert lines[0].startswith("cfg.yaml:1:11: PLUGINS[0]: no such file: ")
        assert lines[1].startswith("cfg.yaml:1:22: PLUGINS[1]: cannot import ")
        assert "ModuleNotFoundError: No module named 'no_such_module'" in lines[1]

    def test_modules_of_an_earlier_configuration_are_forgotten(self) -> None:
        load_config("cfg.yaml")
        Path("small.yaml").write_text("SOLVER: {NAME: TrainValSolver, WORK_DIR: x, MODEL: {NAME: net}}\n")
        assert "SOLVER.MODEL.NAME: unknown model net" in report(path="small.yaml")

    def test_paths_and_modules_are_told_apart(self) -> None:
        here = Path.cwd()
        assert [absolute_plugin(text, here) for text in ("a.py", "./b", "some.module", "/x/../y.py")] == [
            f"{here}/a.py",
            f"{here}/b",
            "some.module",
            "/y.py",
        ]


class TestBetweenSections:
    def test_what_a_hook_checks_is_located_at_its_key(self) -> None:
        text = report("SOLVER.TRAIN_HOOKS[0].WARN_ABOVE=2000")
        assert text.startswith(
            'override "SOLVER.TRAIN_HOOKS[0].WARN_ABOVE=2000": SOLVER.TRAIN_HOOKS[0].WARN_ABOVE: '
            "must not exceed ENV.SEED + 1000\n    found:    2000"
        )

    def test_a_role_is_taken_once_in_a_mode(self) -> None:
        both = "SOLVER.TRAIN_HOOKS=[{NAME: OneHook}, {NAME: OtherHook}]"
        assert (
            "SOLVER.TRAIN_HOOKS[1].NAME: a second hook of the role 'one', which SOLVER.TRAIN_HOOKS[0] (OneHook) has"
            in report(both)
        )
        load_config(
            "cfg.yaml", ["SOLVER.TRAIN_HOOKS=[{NAME: OneHook}]", "SOLVER.EVAL_HOOKS=[{NAME: OtherHook}]"]
        )


class TestEnv:
    def test_defaults(self) -> None:
        env = EnvConfig()
        assert {key: env[key] for key in ("SEED", "BACKEND", "STRATEGY", "DEVICE", "DETERMINISTIC", "USE_PL")} == {
            "SEED": 0, "BACKEND": "auto", "STRATEGY": None, "DEVICE": "auto", "DETERMINISTIC": False, "USE_PL": False,
        }  # fmt: skip
        assert (env.CUDNN_DETERMINISTIC, env.CUDNN_BENCHMARK, env.SYNC_BN, env.COMPILE) == (
            None,
            None,
            False,
            False,
        )

    @pytest.mark.parametrize("device", ["auto", "cpu", "mps", "cuda", "cuda:0", "cuda:12"])
    def test_devices(self, device: str) -> None:
        assert load_config("cfg.yaml", [f"ENV.DEVICE={device}"]).env.device == device

    @pytest.mark.parametrize("device", ["tpu", "'cuda:'", "cuda:x", "cpu:0", "CUDA", "''"])
    def test_what_is_no_device(self, device: str) -> None:
        assert "ENV.DEVICE: must be cpu, cuda, cuda:N, mps or auto" in report(f"ENV.DEVICE={device}")

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("ENV.STRATEGY=x", "ENV.STRATEGY.NAME: unknown strategy x"),
            ("ENV.STRATEGY={NAME: fsdp, SHARDING: half}", "ENV.STRATEGY.SHARDING: must be one of 'full', 'grad_op', 'hybrid'"),
            ("ENV.STRATEGY={NAME: ddp, SHARDING: full}", "ENV.STRATEGY.SHARDING: unknown key"),
            ("ENV.STRATEGY=1", "ENV.STRATEGY: must be a section"),
            ("ENV.HEARTBEAT_TIMEOUT=1", "ENV.HEARTBEAT_TIMEOUT: must be >= 5"),
            ("ENV.BACKEND=mpi", "ENV.BACKEND: must be one of 'auto', 'gloo', 'nccl'"),
            ("ENV.SYNC_BN=2", "ENV.SYNC_BN: must be a boolean"),
            ("ENV.CUDNN=true", "ENV.CUDNN: unknown key"),
        ],
    )
    def test_what_is_refused(self, override: str, message: str) -> None:
        assert first_lines(report(override)) == [f'override "{override}": {message}']

    def test_an_installed_engine_is_accepted(self) -> None:
        assert load_config("cfg.yaml", ["ENV.USE_PL=on"]).env.use_pl is True

    def test_an_engine_that_is_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ENGINES, "names", lambda: ["native"])
        assert first_lines(report("ENV.USE_PL=yes")) == [
            'override "ENV.USE_PL=yes": ENV.USE_PL: needs an engine plugin named lightning, and none is installed '
            "(pip install scepter-lightning)"
        ]


class TestDump:
    def again(self, cfg: RunConfig) -> RunConfig:
        Path("dump.yaml").write_text(dump_config(cfg), encoding="utf-8")
        return load_config("dump.yaml")

    def test_what_is_written_reads_back_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SECRET_TOKEN", "s3cret")
        cfg = load_config("cfg.yaml", ["SOLVER.EVAL_DATA=${SOLVER.TRAIN_DATA}"])
        text = dump_config(cfg)
        again = self.again(cfg)
        assert again == cfg
        assert dump_config(again) == text
        assert "s3cret" not in text
        assert again.META["TOKEN"] == "s3cret"

    def test_the_text(self, tmp_path: Path) -> None:
        cfg = load_config("cfg.yaml", ["SOLVER.WORK_DIR=runs/输出 1"])
        lines = dump_config(cfg).splitlines()
        assert lines[:9] == [
            "PLUGINS:", f"  - {tmp_path}/task.py", "ENV:", "  SEED: 3", "  BACKEND: auto", "  STRATEGY:",
            "  TIMEOUT: 600.0", "  HEARTBEAT_TIMEOUT: 25.0", "  DEVICE: cpu",
        ]  # fmt: skip
        for line in (
            "  WORK_DIR: runs/输出 1", "  LOG_FILE: std_log.txt", "  RESUME_FROM: null", "  MAX_EPOCHS: 2", "  EVAL_INTERVAL:",
            "    ROOT: '${SOLVER.WORK_DIR}/data'", "    SCALE: 1.0", "    KIND:", "        - 'on'", "        - 10",
            "      - 1.0", "      WARN_ABOVE: 0.001", "      PREFIX: '1e5'", "      MODE: null", "      EMPTY:",
            "      TEXT: 'no'", "  TOKEN: '${env:SECRET_TOKEN,none}'", "  WHEN: 'on'", "    - ${SOLVER.MAX_EPOCHS}",
        ):  # fmt: skip
            assert line in lines

    def test_time_is_resolved_and_a_literal_reference_stays_one(self) -> None:
        cfg = load_config(
            "cfg.yaml", ["META=$${ENV.SEED}", "SOLVER.LOG_FILE=${env:NO_SUCH_VARIABLE,x}-${now:%Y}-$${a}"]
        )
        assert cfg.META == "${ENV.SEED}"
        text = dump_config(cfg)
        assert "META: $${ENV.SEED}\n" in text
        assert "${now" not in text
        assert f"LOG_FILE: ${{env:NO_SUCH_VARIABLE,x}}-{cfg.SOLVER.LOG_FILE.split('-')[1]}-$${{a}}\n" in text
        assert self.again(cfg) == cfg

    def test_another_reader_of_yaml_sees_the_same_values(self) -> None:
        read = yaml.safe_load(dump_config(load_config("cfg.yaml", ["ENV.SEED=8"])))
        assert read["ENV"]["SEED"] == 8
        assert read["SOLVER"]["TRAIN_HOOKS"][0]["WARN_ABOVE"] == 0.001
        assert read["SOLVER"]["TRAIN_HOOKS"][0]["PREFIX"] == "1e5"
        assert read["META"]["WHEN"] == "on"

    def test_what_a_program_changed_is_written_and_not_the_source(self) -> None:
        cfg = load_config("cfg.yaml", ["SOLVER.WORK_DIR=${env:NO_SUCH_VARIABLE,a}"])
        cfg.SOLVER.WORK_DIR = "b"
        assert "  WORK_DIR: b\n" in dump_config(cfg)

    def test_code_paths_that_hold_references_stay_references_and_absolute(self, tmp_path: Path) -> None:
        Path("cfg.yaml").write_text(CFG.replace("[./task.py]", "['./${env:NO_SUCH_VARIABLE,task}.py']"))
        cfg = load_config("cfg.yaml")
        assert cfg.plugins == [str(tmp_path / "task.py")]
        assert f"- '{tmp_path}/./${{env:NO_SUCH_VARIABLE,task}}.py'\n" in dump_config(cfg)
        assert self.again(cfg) == cfg

    @settings(max_examples=200, deadline=None)
    @given(
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
                | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["A", "b c", "1", "on"]), inner),
                max_leaves=8,
            ),
            max_size=4,
        )
    )  # fmt: skip
    def test_any_values_round_trip(self, values: dict[str, Any]) -> None:
        text = dump(FreeSection(META=values))
        read = Path("round.yaml")
        read.write_text(text + "SOLVER: {NAME: TrainValSolver, WORK_DIR: x}\n", encoding="utf-8")
        assert values == load_config("round.yaml").META


def test_reading_configurations_imports_no_torch() -> None:
    program = (
        "import sys, scepter_core, scepter_core.runconfig, scepter_core.sections, scepter_core.config\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_hooks_here_are_those_of_the_local_module() -> None:
    load_config("cfg.yaml")
    assert HOOKS.origin(HOOKS.get("WarnHook")) == "task.py"
