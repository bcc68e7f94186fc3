"""What is registered from code, and the user's own modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scepter_core import Hook, discovery, load_config
from scepter_core.discovery import forget_local, import_local
from scepter_core.errors import ConfigError
from scepter_core.registry import (
    DATASETS,
    HOOKS,
    MODELS,
    OPTIMIZERS,
    REGISTRIES,
    SOLVERS,
    Registry,
    UnknownName,
    origin,
    resolve,
)
from scepter_core.sections import HookConfig

TASK = """
from pydantic import Field
from scepter_core import HOOKS, DATASETS, Hook, HookConfig

VALUE = {value}

@HOOKS.register_class()
class MyHook(Hook):
    class Config(HookConfig):
        priority: int = 50
        warn_above: float = Field(100.0, gt=0)

@DATASETS.register_function("numbers")
def make_numbers(size: int = {value}, logger=None):
    return list(range(size))
"""


@pytest.fixture(autouse=True)
def nothing_left_behind():
    forget_local(keep=set())  # what tests before this one left
    path = list(sys.path)
    yield
    forget_local(keep=set())
    assert sys.path == path


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_file_is_imported_under_its_own_name_and_registers(tmp_path: Path):
    write(tmp_path / "my_task.py", TASK.format(value=3))
    module = import_local("./my_task.py", tmp_path)
    assert module is sys.modules["my_task"]
    assert sys.path[0] == str(tmp_path)
    hook = HOOKS.build({"NAME": "MyHook", "WARN_ABOVE": 5})
    assert (hook.priority, hook.cfg.WARN_ABOVE, hook.cfg.get("WARN_ABOVE"), hook.name) == (
        50,
        5.0,
        5.0,
        "MyHook",
    )
    assert origin(hook) == "my_task.py"
    assert DATASETS.build({"NAME": "numbers"}) == [0, 1, 2]
    assert DATASETS.build({"NAME": "numbers", "SIZE": 1, "BATCH_SIZE": 4}) == [0]


@pytest.mark.parametrize("spec", ["my_task.py", "./my_task.py", "../here/my_task.py", "{folder}/my_task.py"])
def test_ways_to_write_a_file(tmp_path: Path, spec: str):
    folder = tmp_path / "here"
    write(folder / "my_task.py", TASK.format(value=3))
    first = import_local(spec.format(folder=folder), folder)
    assert import_local("./my_task.py", folder) is first
    assert Path(str(first.__file__)) == folder / "my_task.py"


def test_neighbours_of_the_file_can_be_imported_and_go_with_it(tmp_path: Path):
    for name, value in (("a", 1), ("b", 2)):
        write(tmp_path / name / "my_task.py", "import neighbour_of_task\nVALUE = neighbour_of_task.VALUE\n")
        write(tmp_path / name / "neighbour_of_task.py", f"VALUE = {value}\n")
    assert import_local("a/my_task.py", tmp_path).VALUE == 1
    forget_local(keep=set())
    assert "neighbour_of_task" not in sys.modules
    assert import_local("b/my_task.py", tmp_path).VALUE == 2


def test_a_package_folder(tmp_path: Path):
    write(tmp_path / "my_tasks" / "__init__.py", "from my_tasks.inner import VALUE\n")
    write(tmp_path / "my_tasks" / "inner.py", "VALUE = 4\n")
    assert import_local("./my_tasks", tmp_path).VALUE == 4
    forget_local(keep={tmp_path / "my_tasks"})
    assert "my_tasks.inner" in sys.modules
    other = write(tmp_path / "other_task.py", "")
    import_local("./other_task.py", tmp_path)
    forget_local(keep={other})
    assert {"my_tasks", "my_tasks.inner"} & set(sys.modules) == set()


def test_another_file_of_the_same_name_takes_the_place_of_the_first(tmp_path: Path):
    write(tmp_path / "a" / "my_task.py", TASK.format(value=1))
    write(tmp_path / "b" / "my_task.py", TASK.format(value=2))
    assert import_local("a/my_task.py", tmp_path).VALUE == 1
    assert import_local("b/my_task.py", tmp_path).VALUE == 2
    assert DATASETS.build({"NAME": "numbers"}) == [0, 1]
    assert import_local("a/my_task.py", tmp_path).VALUE == 1


def test_a_file_that_was_edited_is_imported_again(tmp_path: Path):
    file = write(tmp_path / "my_task.py", "VALUE = 1\n")
    assert import_local("my_task.py", tmp_path).VALUE == 1
    write(file, "VALUE = 1 + 20\n")
    assert import_local("my_task.py", tmp_path).VALUE == 21


def test_forgetting_drops_modules_and_what_they_registered(tmp_path: Path):
    write(tmp_path / "my_task.py", TASK.format(value=3))
    kept = write(
        tmp_path / "kept.py",
        "from scepter_core import DATASETS\n\n@DATASETS.register_function()\ndef kept(): ...\n",
    )
    import_local("my_task.py", tmp_path)
    import_local("kept.py", tmp_path)
    forget_local(keep={kept})
    assert "my_task" not in sys.modules
    assert "MyHook" not in HOOKS.names()
    assert "kept" in DATASETS.names()
    assert str(tmp_path) in sys.path
    forget_local(keep=set())
    assert "kept" not in DATASETS.names()
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "x = 1\nimport a_module_nobody_has\n",
            "ModuleNotFoundError: No module named 'a_module_nobody_has' ({file}:2)",
        ),
        ("\n\nx = (\n", "SyntaxError: '(' was never closed (bad_task.py, line 3) ({file}:3)"),
        ("def deep():\n    return 1 / 0\n\ndeep()\n", "ZeroDivisionError: division by zero ({file}:2)"),
        ("raise SystemExit(3)\n", "SystemExit: 3 ({file}:1)"),
    ],
)
def test_a_file_that_fails_is_a_config_error_with_cause_and_line(tmp_path: Path, text: str, cause: str):
    file = write(tmp_path / "bad_task.py", text)
    with pytest.raises(ConfigError) as caught:
        import_local("./bad_task.py", tmp_path)
    assert str(caught.value) == f"cannot import ./bad_task.py: {cause.format(file=file)}"
    assert caught.value.__cause__ is not None
    assert "bad_task" not in sys.modules
    write(file, "VALUE = 'mended by now'\n")
    assert import_local("./bad_task.py", tmp_path).VALUE == "mended by now"


def test_what_a_failing_file_registered_is_taken_back(tmp_path: Path):
    write(tmp_path / "bad_task.py", TASK.format(value=3) + "\n1 / 0\n")
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        import_local("./bad_task.py", tmp_path)
    assert "MyHook" not in HOOKS.names()


def test_files_that_cannot_be_modules(tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        import_local("./gone.py", tmp_path)
    assert str(caught.value) == f"no such file: {tmp_path / 'gone.py'} (for ./gone.py)"
    for name in ("json.py", "pluggy.py"):
        write(tmp_path / name, "")
        with pytest.raises(ConfigError, match=f"its name hides the module '{name[:-3]}'; rename"):
            import_local(f"./{name}", tmp_path)
    write(tmp_path / "a.b.py", "")
    with pytest.raises(ConfigError, match="one dot"):
        import_local("./a.b.py", tmp_path)
    assert sys.modules["pluggy"].__file__ != str(tmp_path / "pluggy.py")


def test_a_module_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    write(tmp_path / "site" / "installed_tasks" / "__init__.py", "")
    write(tmp_path / "site" / "installed_tasks" / "one.py", "VALUE = 1\n")
    write(tmp_path / "site" / "installed_tasks" / "bad.py", "import a_module_nobody_has\n")
    assert import_local("installed_tasks.one", tmp_path).VALUE == 1
    with pytest.raises(ConfigError) as caught:
        import_local("installed_tasks.bad", tmp_path)
    assert str(caught.value) == (
        "cannot import installed_tasks.bad: ModuleNotFoundError: No module named 'a_module_nobody_has'"
    )
    write(tmp_path / "not_installed.py", "")
    with pytest.raises(ConfigError, match=r"to import the file, write \./not_installed\.py"):
        import_local("not_installed", tmp_path)
    for name in ("installed_tasks", "installed_tasks.one"):
        del sys.modules[name]


def test_the_program_itself_is_not_imported_twice(tmp_path: Path):
    text = (
        TASK.format(value=3)
        + "\nfrom pathlib import Path\nfrom scepter_core.discovery import import_local\n"
        + "print(import_local('./program.py', Path(__file__).parent).__name__)\n"
    )
    file = write(tmp_path / "program.py", text)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("__main__\n", "")


def test_a_spawned_process_can_import_the_file(tmp_path: Path):
    write(tmp_path / "tasks" / "my_task.py", "class Item:\n    def __init__(self):\n        self.value = 5\n")
    program = """
import multiprocessing
from pathlib import Path
from scepter_core.discovery import import_local

def main():
    item = import_local("tasks/my_task.py", Path(__file__).parent).Item()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(getattr, (item, "value")))

if __name__ == "__main__":
    main()
"""
    file = write(tmp_path / "program.py", program)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False, cwd="/")
    assert (done.stdout, done.stderr) == ("5\n", "")


# --- registering ----------------------------------------------------------------------------------------------------


def test_decorators_give_the_thing_back_and_take_a_name():
    models = Registry("models")

    @models.register_class("Other")
    class Model: ...

    @models.register_function()
    def make_model(): ...

    assert models.get("Other") is Model
    assert models.get("make_model") is make_model
    assert {"Other", "make_model"} <= set(models.names())


def test_the_same_thing_again_replaces_and_another_is_refused():
    models = Registry("models")

    def define():
        class Model: ...

        return Model

    models.register_class()(define())
    second = models.register_class()(define())
    assert models.get("Model") is second

    class Different: ...

    with pytest.raises(ConfigError) as caught:
        models.register_class("Model")(Different)
    place = f"{__name__}.test_the_same_thing_again_replaces_and_another_is_refused.<locals>"
    assert str(caught.value) == (
        f"cannot register {place}.Different: the model Model is {place}.define.<locals>.Model already"
    )
    assert models.get("Model") is second


def test_what_cannot_be_registered():
    with pytest.raises(TypeError, match=r"the decorator is called: @HOOKS\.register_class\(\)"):

        @HOOKS.register_class
        class Bare(Hook): ...

    with pytest.raises(TypeError, match="register_class takes a class"):
        MODELS.register_class()(len)
    with pytest.raises(TypeError, match="register_function takes a function"):
        MODELS.register_function()(int)
    with pytest.raises(ConfigError, match=r"Plain: a hook has to derive from scepter_core\.Hook"):

        @HOOKS.register_class()
        class Plain: ...


def test_an_unknown_name_says_what_is_near_or_to_install():
    hooks = Registry("hooks")

    @hooks.register_class()
    class GradNormHook(Hook): ...

    def hint(name: str) -> str | None:
        with pytest.raises(UnknownName) as caught:
            hooks.lookup(name)
        assert caught.value.message == f"unknown hook {name}"
        return caught.value.hint

    assert hint("GradNormHok") == "did you mean GradNormHook?"
    assert "GradNormHook" in str(hint("Zzzzzz"))
    for name, package in {
        "BackwardHook": "backward",
        "LrHook": "lr",
        "LogHook": "log",
        "CheckpointHook": "checkpoint",
    }.items():
        if not discovery.find("hooks", name):
            assert hint(name) == f"pip install scepter-{package}"


def test_packages_to_install_are_named_where_none_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("scepter_core.discovery.installed._installed", [])
    with pytest.raises(ConfigError) as caught:
        HOOKS.get("LogHook")
    assert str(caught.value) == "unknown hook LogHook\n    hint:     pip install scepter-log"
    with pytest.raises(ConfigError) as caught:
        HOOKS.get("LogHok")
    assert caught.value.problems[0].hint == "did you mean LogHook? (pip install scepter-log)"
    with pytest.raises(ConfigError) as caught:
        Registry("models").get("Zzz")
    assert caught.value.problems[0].hint == "no model is installed"


# --- building -------------------------------------------------------------------------------------------------------


def test_a_section_is_checked_before_it_is_built():
    hooks = Registry("hooks", common=HookConfig)

    @hooks.register_class()
    class Strict(Hook):
        class Config(HookConfig):
            warn_above: float = 1.0

    with pytest.raises(ConfigError) as caught:
        hooks.build({"NAME": "Strict", "WARN_ABVE": 1, "PRIORITY": "high"})
    assert sorted((p.path, p.hint) for p in caught.value.problems) == [
        ("PRIORITY", None),
        ("WARN_ABVE", "did you mean WARN_ABOVE?"),
    ]
    with pytest.raises(ConfigError, match="NAME says what to build"):
        hooks.build({"WARN_ABOVE": 1})
    section = hooks.validate({"NAME": "Strict"})
    assert hooks.validate(section) is section
    assert hooks.build(section).cfg is section
    assert hooks.build(hooks.build(section).cfg).cfg.WARN_ABOVE == 1.0


def test_a_hook_written_for_scepter_takes_any_keys():
    hooks = Registry("hooks", common=HookConfig)

    @hooks.register_class()
    class Ported(Hook):
        def __init__(self, cfg, logger=None):
            super().__init__(cfg, logger=logger)
            self.priority = cfg.get("PRIORITY", 40)
            self.interval = cfg.get("INTERVAL", 10)
            self.inner = cfg.INNER.DEEP if cfg.have("INNER") else None

    hook = hooks.build({"NAME": "Ported", "INTERVAL": 3, "INNER": {"DEEP": [1]}}, logger="logger")
    assert (hook.interval, hook.inner, hook.logger) == (3, [1], "logger")
    assert hooks.build({"NAME": "Ported", "PRIORITY": 7}).priority == 7


def test_things_of_other_people_are_built_by_their_signature():
    optimizers = Registry("optimizers", supplied=frozenset({"params"}), renames={"lr": "LEARNING_RATE"})

    @optimizers.register_class()
    class Step:
        def __init__(self, params, lr: float = 0.1, momentum: float = 0.0):
            self.given = (params, lr, momentum)

    step = optimizers.build(
        {"NAME": "Step", "LEARNING_RATE": 0.5}, logger="unused", params=[1], model="unused"
    )
    assert step.given == ([1], 0.5, 0.0)


def test_a_failing_constructor_is_named():
    models = Registry("models")

    @models.register_class("Fragile")
    class Model:
        def __init__(self, width: int = 0):
            self.ratio = 1 / width

    with pytest.raises(ZeroDivisionError) as caught:
        models.build({"NAME": "Fragile"})
    assert caught.value.__notes__ == [f"while building Fragile ({__name__}.{Model.__qualname__})"]


def test_a_constructor_that_refuses_its_values_is_a_config_error():
    models = Registry("models")

    @models.register_class("Picky")
    class Model:
        def __init__(self, width: int = 0):
            if width % 2:
                raise ValueError(f"{width} is odd")
            if width > 7:
                raise AssertionError(f"{width} is too wide")  # as an assert does

    for width, said in ((3, "3 is odd"), (8, "8 is too wide")):
        with pytest.raises(ConfigError) as caught:
            models.build({"NAME": "Picky", "WIDTH": width})
        (problem,) = caught.value.problems
        assert problem.message == f"Picky cannot be built: {said}"
        assert problem.hint.startswith(f"raised in {__file__}, line ")
        assert type(caught.value.__cause__) in (ValueError, AssertionError)


def test_a_provider_answers_last_and_only_when_asked():
    program = """
import sys
from scepter_core.registry import OPTIMIZERS
assert "AdamW" not in OPTIMIZERS.names()
assert "torch" not in sys.modules
print(OPTIMIZERS.get("AdamW").__module__, "AdamW" in OPTIMIZERS.names(), OPTIMIZERS.origin(OPTIMIZERS.get("AdamW")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    module, listed, distribution, _ = done.stdout.split()
    assert (module, listed, distribution) == ("torch.optim.adamw", "True", "torch")


def test_resolve_gives_models_and_reports_unknown_names():
    with pytest.raises(UnknownName) as caught:
        resolve("optimizers", "AdamWW")
    assert (caught.value.message, caught.value.hint) == ("unknown optimizer AdamWW", "did you mean AdamW?")
    assert "LEARNING_RATE" in {
        (f.alias or n).upper() for n, f in OPTIMIZERS.model("SGD").model_fields.items()
    }
    assert set(REGISTRIES) == set(discovery.KINDS)
    assert REGISTRIES["solvers"] is SOLVERS


def test_a_key_that_a_class_written_for_scepter_reads_and_nobody_wrote(tmp_path: Path):
    write(
        tmp_path / "old_net.py",
        "from scepter_core import MODELS\n\n"
        "@MODELS.register_class()\nclass OldNet:\n    def __init__(self, cfg, logger=None):\n"
        "        self.pooled = hasattr(cfg, 'POOL')\n        self.width = cfg.BACKBONES[0].WIDTH\n",
    )
    write(
        tmp_path / "cfg.yaml",
        "PLUGINS: [./old_net.py]\nSOLVER:\n  NAME: TrainValSolver\n  WORK_DIR: run\n"
        "  MODEL: {NAME: OldNet, BACKBONES: [{NAME: Res, WIDHT: 3}]}\n",
    )
    section = load_config(tmp_path / "cfg.yaml").SOLVER.MODEL
    with pytest.raises(ConfigError) as caught:
        MODELS.build(section)
    assert str(caught.value) == (
        f"{tmp_path}/cfg.yaml:5:37: SOLVER.MODEL.BACKBONES[0].WIDTH: OldNet reads this key, and it is not there\n"
        "    hint:     did you mean WIDHT?"
    )
