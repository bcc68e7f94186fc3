"""`plugins`: the list from metadata, and what is in one, from a process of its own."""

from __future__ import annotations

import json

import pytest

from scepter_core import __version__

GOOD = '''
print("noise at import")
from pydantic import Field
from scepter_core import Hook, HookConfig, hookimpl, hookspec


class Events:
    @hookspec
    def after_gold(self, solver, amount):
        """Gold was found.

        More about it.
        """


class Gold(Hook):
    """Looks for gold.

    Long text.
    """

    events = Events

    class Config(HookConfig):
        priority: int = 70
        depth: float = Field(ge=0, description="How deep, in metres.")
        tools: list[str] = ["spade"]
        label: str = ""

    @hookimpl(trylast=True)
    def after_iter(self, solver): ...

    def before_solve(self, solver): ...

    @hookimpl(optionalhook=True)
    def on_silver(self, solver): ...
'''

SHOWN = """\
Gold  (hooks, demo-gold 1.2)
Looks for gold.

acts at: before_solve, after_iter (trylast), on_silver (optional)
brings:  after_gold(solver, amount), scope mode. Gold was found.

KEY       TYPE               DEFAULT    DESCRIPTION
PRIORITY  an integer         70         Hooks of the same event run in ascending priority.
DEPTH     a number >= 0      required   How deep, in metres.
TOOLS     a list of strings  ["spade"]
LABEL     a string           ""
"""


def test_the_list(project):
    site = project.distribution("demo-gold", GOOD, {"Gold": "Gold"})
    done = project.scepter("plugins", PYTHONPATH=site)
    assert (done.status, done.err) == (0, "")
    rows = [line.split(maxsplit=4) for line in done.out.splitlines()]
    assert rows[0] == ["KIND", "NAME", "DISTRIBUTION", "VERSION", "STATUS"]
    assert ["hooks", "Gold", "demo-gold", "1.2", "compatible"] in rows
    assert ["solvers", "TrainValSolver", "scepter-core", __version__, "compatible"] in rows


def test_the_list_says_what_cannot_be_used(project):
    site = project.distribution("demo-old", "", {"Old": "Old"}, requires="scepter-core<0.0.1")
    project.distribution("demo-one", "", {"Twice": "Twice"})
    project.distribution("demo-two", "", {"Twice": "Twice"})
    lines = [" ".join(line.split()) for line in project.scepter("plugins", PYTHONPATH=site).out.splitlines()]
    assert f"hooks Old demo-old 1.2 incompatible: needs scepter-core<0.0.1, this is {__version__}" in lines
    assert "hooks Twice demo-one 1.2 ambiguous: also from demo-two 1.2" in lines
    assert "hooks Twice demo-two 1.2 ambiguous: also from demo-one 1.2" in lines


def test_the_list_as_json(project):
    site = project.distribution("demo-gold", GOOD, {"Gold": "Gold"}, requires="scepter-core>=0.0.1")
    found = json.loads(project.scepter("plugins", "--json", PYTHONPATH=site).out)
    assert {
        "kind": "hooks",
        "name": "Gold",
        "value": "demo_gold:Gold",
        "distribution": "demo-gold",
        "version": "1.2",
        "requires_core": ">=0.0.1",
        "compatible": True,
    } in found


def test_one(project):
    site = project.distribution("demo-gold", GOOD, {"Gold": "Gold"})
    for name in ("Gold", "demo-gold", "Demo_Gold"):
        done = project.scepter("plugins", name, PYTHONPATH=site)
        assert (done.status, done.out, done.err) == (0, SHOWN, "")


def test_one_as_json(project):
    site = project.distribution("demo-gold", GOOD, {"Gold": "Gold"})
    (found,) = json.loads(project.scepter("plugins", "Gold", "--json", PYTHONPATH=site).out)
    assert found["broken"] is None
    assert found["events"][1] == {"event": "after_iter", "kind": "trylast", "optional": False}
    assert found["brings"][0]["arguments"] == ["solver", "amount"]
    assert found["keys"][1] == {
        "key": "DEPTH",
        "type": "a number >= 0",
        "required": True,
        "default": None,
        "description": "How deep, in metres.",
    }


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys\nprint('x')\nsys.exit(3)", "Bad of demo-bad 1.2 cannot be imported: SystemExit: 3"),
        ("1 / 0", "Bad of demo-bad 1.2 cannot be imported: ZeroDivisionError: division by zero"),
        ("raise KeyboardInterrupt('me')", "KeyboardInterrupt: me"),
        ("x = 1", "Bad of demo-bad 1.2 cannot be imported: AttributeError: module 'demo_bad' has no attribute 'Bad'"),
        ("import os\nos._exit(0)", "importing it ends the process (exit status 0)"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "importing it ends the process (SIGKILL)"),
        (
            "import os, sys\nsys.stderr.write('a\\nthe last words\\n')\nsys.stderr.flush()\nos._exit(7)",
            "importing it ends the process (exit status 7): the last words",
        ),
        ("class Bad: pass", "Bad of demo-bad 1.2 cannot be used: a hook has to derive from scepter_core.Hook"),
    ],
)
def test_a_broken_one(project, code, reason):
    site = project.distribution("demo-bad", code, {"Bad": "Bad"})
    done = project.scepter("plugins", "Bad", PYTHONPATH=site)
    assert (done.status, done.err) == (1, "")
    assert done.out == f"Bad  (hooks, demo-bad 1.2)\nbroken: {reason}\n"


def test_check(project):
    site = project.distribution("demo-bad", "1 / 0", {"Bad": "Bad"})
    project.distribution("demo-gold", GOOD, {"Gold": "Gold"})
    needs = "from scepter_core import Hook\nclass Needs(Hook):\n    def {event}(self, solver): ...\n"
    project.distribution("demo-fine", needs.format(event="after_gold"), {"Fine": "Needs"})
    project.distribution("demo-typo", needs.format(event="after_golld"), {"Typo": "Needs"})
    done = project.scepter("plugins", "--check", PYTHONPATH=site)
    assert (done.status, done.err) == (1, "")
    rows = {line.split()[1]: line.split(maxsplit=4)[4] for line in done.out.splitlines()[1:-2]}
    assert rows["Bad"] == "broken: Bad of demo-bad 1.2 cannot be imported: ZeroDivisionError: division by zero"
    assert rows["Typo"] == "broken: no installed plugin brings the event after_golld; did you mean after_gold?"
    sound = {name: status for name, status in rows.items() if name not in ("Bad", "Typo")}
    assert {"Fine", "Gold", "LogHook", "TrainValSolver"} <= set(sound)
    assert set(sound.values()) == {"ok"}
    assert done.out.endswith(f"\n\n{len(rows)} plugins, 2 broken\n")


def test_an_unknown_name(project):
    done = project.scepter("plugins", "LogHok")
    assert (done.status, done.out, done.err) == (2, "", "no plugin is named LogHok; did you mean LogHook?\n")
    done = project.scepter("plugins", "Zzzzz")
    assert done.err == "no plugin is named Zzzzz; scepter plugins lists those that are installed\n"
