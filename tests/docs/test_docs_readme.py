"""The README from top to bottom, as a stranger follows it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = "README.md"
EXAMPLE = "docs/examples/digits/digits.yaml"


def _tree(folder: Path) -> str:
    """The folder as `tree` draws it."""

    def below(path: Path, indent: str) -> Iterator[str]:
        entries = sorted(path.iterdir())
        for entry in entries:
            last = entry == entries[-1]
            yield f"{indent}{'└── ' if last else '├── '}{entry.name}"
            if entry.is_dir():
                yield from below(entry, indent + ("    " if last else "│   "))

    return "\n".join([str(Path("runs", folder.name)), *below(folder, "")]) + "\n"


def _shape(line: str) -> str:
    """A log line with its numbers taken out."""
    return re.sub(r"\d+(\.\d+)?(e[-+]\d+)?k?", "#", line)


@pytest.fixture(scope="module")
def first_run(docs: Any, sandbox: Any) -> list[str]:
    """The first command of the README; returns what it shows."""
    command = docs.blocks(PAGE, "sh")[0].text
    install, _, run = command.strip().partition(" && ")
    assert install == "pip install -r requirements.txt"
    done = sandbox.run(run)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_there_are_exactly_two_commands_to_start_with(docs: Any) -> None:
    commands = [block.text.strip() for block in docs.blocks(PAGE, "sh")[:2]]
    assert commands == [
        f"pip install -r requirements.txt && scepter run {EXAMPLE}",
        "pip install -r requirements-dev.txt && pytest",
    ]
    assert (docs.root / "requirements.txt").is_file()
    assert (docs.root / "requirements-dev.txt").is_file()


def test_the_configuration_shown_is_the_file(docs: Any) -> None:
    assert docs.blocks(PAGE, "yaml")[0].text == (docs.root / EXAMPLE).read_text(encoding="utf-8")
    comments = [line.partition("#")[2].strip() for line in docs.blocks(PAGE, "yaml")[0].text.splitlines()]
    sections = ("ENV:", "SOLVER:")
    lines = docs.blocks(PAGE, "yaml")[0].text.splitlines()
    assert [line for line, comment in zip(lines, comments, strict=True) if not comment] == list(sections)


def test_the_lines_shown_are_the_runs(docs: Any, first_run: list[str]) -> None:
    shown = docs.blocks(PAGE, "text")[0].text.splitlines()
    gap = shown.index("...")
    assert [_shape(line) for line in first_run[:gap]] == [_shape(line) for line in shown[:gap]]
    assert _shape(first_run[-1]) == _shape(shown[-1])


def test_the_run_reaches_what_is_said(first_run: list[str]) -> None:
    accuracy = re.search(r"test epoch 8/8 .* acc (\d\.\d+)", first_run[-1])
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.97


def test_the_tree_shown_is_what_the_run_writes(docs: Any, sandbox: Any, first_run: list[str]) -> None:
    assert _tree(sandbox.path / "runs/digits") == docs.blocks(PAGE, "text")[1].text


def test_the_commands_work(docs: Any, sandbox: Any, first_run: list[str]) -> None:
    commands = docs.block_after(PAGE, "## Commands").text.splitlines()
    outputs = {}
    for command in commands:
        done = sandbox.call(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        outputs[" ".join(command.split("#")[0].split())] = done.stdout
    assert "Nothing to do" in outputs[f"scepter run {EXAMPLE} --resume auto"]
    assert "train epoch 9/9 done | step 360" in outputs[f"scepter run {EXAMPLE} --resume auto SOLVER.MAX_EPOCHS=9"]
    assert "ldm_step-best.pth" in outputs[f"scepter eval {EXAMPLE} --resume best"]
    assert "test epoch 9" in outputs[f"scepter test {EXAMPLE}"]
    assert "LOG_INTERVAL" in outputs["scepter plugins LogHook"]
    assert "ldm_step-360.pth" not in outputs["scepter checkpoints runs/digits"]
    assert "ldm_step-last.pth" in outputs["scepter checkpoints runs/digits"]


def test_the_error_report_is_what_is_shown(docs: Any, sandbox: Any) -> None:
    (sandbox.path / "bad.yaml").write_text(docs.block_after(PAGE, "three mistakes").text)
    done = sandbox.call("scepter validate bad.yaml")
    assert done.returncode == 2
    assert done.stderr == docs.blocks(PAGE, "text")[2].text
    assert done.stdout == ""


def test_a_hook_in_a_package_of_its_own(docs: Any, sandbox: Any) -> None:
    pytest.importorskip("hatchling")
    for name in ("scepter-gap/scepter_gap.py", "scepter-gap/pyproject.toml"):
        path = sandbox.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(docs.block_after(PAGE, f"`{name}`:").text)
    code = docs.block_after(PAGE, "`scepter-gap/scepter_gap.py`:").text.splitlines()
    assert len([line for line in code if line]) <= 15

    for command in docs.block_after(PAGE, "Install it").text.splitlines():
        done = sandbox.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert "WARN_ABOVE" in done.stdout
    assert "Eval loss minus training loss." in done.stdout

    entry = docs.block_after(PAGE, "add it to `TRAIN_HOOKS`").text
    lines = (docs.root / EXAMPLE).read_text(encoding="utf-8").splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if line.startswith("  TRAIN_HOOKS:"))
    (sandbox.path / "gap.yaml").write_text("".join([*lines[: place + 1], entry, *lines[place + 1 :]]))
    done = sandbox.run(["scepter", "run", "gap.yaml", "SOLVER.WORK_DIR=runs/gap", "SOLVER.MAX_EPOCHS=6"])
    assert done.returncode == 0, done.stderr
    warning = docs.blocks(PAGE, "text")[-1].text.strip()
    assert _shape(warning) in [_shape(line) for line in done.stdout.splitlines()]


def test_a_hook_without_a_package(docs: Any, sandbox: Any) -> None:
    code = docs.block_after(PAGE, "`scepter-gap/scepter_gap.py`:").text
    code = code.replace("import Hook,", "import HOOKS, Hook,").replace("class GapHook", "@HOOKS.register_class()\nclass GapHook")
    folder = sandbox.path / "alone"
    folder.mkdir()
    (folder / "gap_alone.py").write_text(code.replace("GapHook", "LocalGapHook"))
    hooks = "SOLVER.EVAL_HOOKS=[{NAME: LocalGapHook, WARN_ABOVE: 0.2}]"
    done = sandbox.run(["scepter", "validate", EXAMPLE, hooks, "-p", "./alone/gap_alone.py"])
    assert (done.returncode, done.stderr) == (0, "")
    assert "eval (LocalGapHook)" in done.stdout


def test_the_python_asked_for_is_the_projects(docs: Any) -> None:
    assert 'requires-python = ">=3.11"' in docs.text("pyproject.toml")
    assert "Python 3.11 or newer" in docs.text(PAGE)
    assert sys.version_info >= (3, 11)
