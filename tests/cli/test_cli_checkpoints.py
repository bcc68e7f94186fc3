"""`checkpoints`: whole ones, damaged ones, none."""

from __future__ import annotations

import json

import pytest

from scepter_core.cli import main
from scepter_core.cli.checkpoints import _size


@pytest.fixture
def saved(project):
    """A project whose run has three checkpoints, of which one is damaged."""
    hooks = "SOLVER.TRAIN_HOOKS=[{NAME: Descent}, {NAME: CheckpointHook, ASYNC: false, SAVE_LAST: true}]"
    assert project.scepter("run", "cfg.yaml", hooks, "--quiet").status == 0
    damaged = project.folder / "run/checkpoints/ldm_step-4.pth"
    damaged.write_bytes(b"")
    return project


def test_the_table(saved):
    done = saved.scepter("checkpoints", "run")
    assert (done.status, done.err) == (0, "")
    header, last, eight, damaged = done.out.splitlines()
    assert header.split() == ["FILE", "STEP", "EPOCH", "UPDATES", "SIZE", "STATE", "METRICS"]
    assert last.split()[:3] == ["ldm_step-last.pth", "8", "2"]
    assert "KiB  newest   eval: loss " in last
    assert eight.split()[:3] == ["ldm_step-8.pth", "8", "2"]
    assert "KiB  whole " in eight
    assert damaged.split() == ["ldm_step-4.pth", "0", "B", "damaged", "the", "file", "is", "empty"]


def test_json(saved):
    done = saved.scepter("checkpoints", "run", "--json")
    found = json.loads(done.out)
    assert [(one["file"], one["newest"], one["damage"]) for one in found] == [
        ("ldm_step-last.pth", True, None),
        ("ldm_step-8.pth", False, None),
        ("ldm_step-4.pth", False, "the file is empty"),
    ]
    assert (found[0]["step"], found[0]["epoch"]) == (8, 2)
    assert found[0]["metrics"]["eval"]["loss"] > 0
    assert found[2]["step"] is None


def test_none(project, capsys):
    folder = project.folder / "empty"
    folder.mkdir()
    assert main(["checkpoints", str(folder)]) == 0
    assert capsys.readouterr().out == f"no checkpoints in {folder}/checkpoints\n"
    assert main(["checkpoints", str(folder), "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"


def test_no_folder(project, capsys):
    assert main(["checkpoints", str(project.folder / "gone")]) == 2
    assert capsys.readouterr().err == f"{project.folder}/gone is no folder\n"
    assert main(["checkpoints", str(project.folder / "cfg.yaml")]) == 2
    assert capsys.readouterr().err == (
        f"{project.folder}/cfg.yaml is no folder; give the folder that is its WORK_DIR\n"
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536 * 1024, "1.5 MiB"), (1024**5, "1024.0 TiB")],
)
def test_sizes(size, text):
    assert _size(size) == text
