"""`validate`: every kind of mistake, with the exact report."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from scepter_core import discovery
from scepter_core.cli import main


@pytest.fixture
def validate(project, monkeypatch, capsys):
    """validate(*arguments) → (status, out, err), in this process."""
    monkeypatch.chdir(project.folder)

    def go(*arguments):
        capsys.readouterr()
        status = main(["validate", *arguments])
        return (status, *capsys.readouterr())

    yield go
    discovery.reset()
    discovery.forget_local([])


def test_what_is_right(project):
    done = project.scepter("validate", "cfg.yaml", "SOLVER.EVAL_HOOKS=[{NAME: Early}, {NAME: Around}]")
    assert (done.status, done.err) == (0, "")
    assert done.out == "ok: cfg.yaml\nTrainValSolver: train (Descent), eval (Early, Around)\n"
    assert not (project.folder / "run").exists()


def test_what_is_wrong(project):
    done = project.scepter("validate", "cfg.yaml", "SOLVER.MAX_EPOCHS=many")
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        'override "SOLVER.MAX_EPOCHS=many": SOLVER.MAX_EPOCHS: must be an integer\n'
        "    found:    many\n"
        "    expected: an integer >= -1\n"
    )


def test_only_the_modes_that_run_are_named(validate):
    assert validate("cfg.yaml", "SOLVER.EVAL_INTERVAL=0") == (0, "ok: cfg.yaml\nTrainValSolver: train (Descent)\n", "")
    assert validate("cfg.yaml", "SOLVER.TRAIN_DATA=null", "SOLVER.EVAL_DATA=null")[1] == (
        "ok: cfg.yaml\nTrainValSolver: nothing to run\n"
    )


def test_a_missing_file(validate, project):
    assert validate("gone.yaml") == (
        2,
        "",
        f"gone.yaml: no such file\n    hint:     the current folder is {project.folder}\n",
    )


def test_a_syntax_error_is_located(validate, project):
    project.write("bad.yaml", "SOLVER:\n  NAME: [a, b\n  X: 1\n")
    status, out, err = validate("bad.yaml")
    assert (status, out) == (2, "")
    assert err.startswith("bad.yaml:3:")


def test_every_mistake_is_reported_at_once(validate, project):
    text = (project.folder / "cfg.yaml").read_text()
    text = text.replace("MAX_EPOCHS: 2", "MAX_EPOCS: 2").replace("BATCH_SIZE: 2}\n  MODEL", "BATCH_SIZE: two}\n  MODEL")
    text = text.replace("{NAME: Descent}", "{NAME: Descnt}")
    project.write("cfg.yaml", text)
    status, out, err = validate("cfg.yaml")
    assert (status, out) == (2, "")
    assert "cfg.yaml:6:3: SOLVER.MAX_EPOCS: unknown key\n" in err
    assert "    hint:     did you mean MAX_EPOCHS?\n" in err
    assert "cfg.yaml:8:39: SOLVER.EVAL_DATA.BATCH_SIZE: must be an integer\n    found:    two\n" in err
    assert "cfg.yaml:11:24: SOLVER.TRAIN_HOOKS[0].NAME: unknown hook Descnt\n" in err
    assert "    hint:     did you mean Descent?\n" in err


def test_lines_are_not_wrapped(validate):
    err = validate("cfg.yaml", "SOLVER.MAX_EPOCS=1")[2]
    expected = next(line for line in err.splitlines() if line.startswith("    expected: "))
    assert expected.endswith("TRAIN_HOOKS, EVAL_HOOKS, TEST_HOOKS")
    assert len(expected) > 200


def test_a_first_party_plugin_that_is_not_installed(project):
    """The hint names the package."""
    code = (
        "import sys\nfrom importlib import metadata\n"
        "every = metadata.distributions\n"
        "metadata.distributions = lambda: (one for one in every() if one.metadata['Name'] != 'scepter-log')\n"
        "from scepter_core.cli import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    project.write("bare.py", code)
    ended = subprocess.run(
        [sys.executable, "bare.py", "validate", "cfg.yaml", "SOLVER.TRAIN_HOOKS=[{NAME: LogHook}]"],
        cwd=project.folder,
        env=project.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "SOLVER.TRAIN_HOOKS[0].NAME: unknown hook LogHook\n" in ended.stderr
    assert "pip install scepter-log" in ended.stderr


def test_a_module_that_fails_to_import(validate, project):
    project.write("broken.py", "x = 1\nx.y\n")
    status, out, err = validate("cfg.yaml", "-p", "broken.py")
    assert (status, out) == (2, "")
    assert "broken.py: AttributeError: 'int' object has no attribute 'y' " in err
    assert err.endswith(f"({project.folder}/broken.py:2)\n")


def test_a_plugin_that_fails_to_import(project):
    site = project.distribution("demo-bad", "raise OSError('no licence')", {"BadHook": "BadHook"})
    done = project.scepter("validate", "cfg.yaml", "SOLVER.EVAL_HOOKS=[{NAME: BadHook}]", PYTHONPATH=site)
    assert (done.status, done.out) == (2, "")
    assert "BadHook of demo-bad 1.2 cannot be imported: OSError: no licence\n" in done.err
    assert project.scepter("validate", "cfg.yaml", PYTHONPATH=site).status == 0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("nothing", 'override "nothing": not an override\n'),
        ("SOLVER.TRAIN_HOOKS[Nix].PRIORITY=1", 'override "SOLVER.TRAIN_HOOKS[Nix].PRIORITY=1": '),
        ("SOLVER.MAX_EPOCHS=[1", 'override "SOLVER.MAX_EPOCHS=[1": '),
    ],
)
def test_wrong_overrides(validate, override, message):
    status, out, err = validate("cfg.yaml", override)
    assert (status, out) == (2, "")
    assert err.startswith(message)


def test_a_method_that_is_no_event(validate):
    assert validate("cfg.yaml", "SOLVER.EVAL_HOOKS=[{NAME: Misspelt}]") == (
        2,
        "",
        'override "SOLVER.EVAL_HOOKS=[{NAME: Misspelt}]": '
        "Misspelt (task.py) in EVAL_HOOKS: before_itr: no event is named before_itr\n"
        "    hint:     did you mean before_iter?\n",
    )


def test_json(project):
    project.write("loud.py", "print('loud')\n")
    done = project.scepter("validate", "cfg.yaml", "--json", "-p", "loud.py")
    assert (done.status, json.loads(done.out)) == (0, {"valid": True, "problems": []})
    assert done.err == "loud\n"


def test_json_of_problems(validate, project):
    text = (project.folder / "cfg.yaml").read_text().replace("MAX_EPOCHS: 2", "MAX_EPOCHS: x")
    project.write("cfg.yaml", text)
    status, out, err = validate("cfg.yaml", "SOLVER.ACCU_STEP=0", "--json")
    assert (status, err) == (2, "")
    found = json.loads(out)
    assert found["valid"] is False
    assert {
        "message": "must be an integer",
        "path": "SOLVER.MAX_EPOCHS",
        "file": "cfg.yaml",
        "line": 6,
        "column": 15,
        "found": "x",
        "expected": "an integer >= -1",
        "hint": None,
    } in found["problems"]
    override = next(problem for problem in found["problems"] if problem["path"] == "SOLVER.ACCU_STEP")
    assert (override["file"], override["line"], override["column"]) == ('override "SOLVER.ACCU_STEP=0"', None, None)
