"""The documentation as data: its pages, and what they show."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from scepter_core.cli import main

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the paragraph before it."""

    page: str
    line: int
    language: str
    text: str
    before: str

    @property
    def is_for_the_readme(self) -> bool:
        """Whether it is no valid configuration by itself; the README's own tests run it."""
        return "three mistakes" in self.before or "add it to `TRAIN_HOOKS`" in self.before

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class Docs:
    """Pages by their path from the root of the repository."""

    root = ROOT
    pages = [
        *(f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
        *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
        *(f"docs/examples/{name}/README.md" for name in ("digits", "pylm")),
    ]

    def text(self, page: str) -> str:
        return (ROOT / page).read_text(encoding="utf-8")

    def blocks(self, page: str, language: str | None = None) -> list[Block]:
        text = self.text(page)
        found = []
        for match in _FENCE.finditer(text):
            before = text[: match.start()].rstrip().rsplit("\n\n", 1)[-1]
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(page, line, match[1], match[2], before))
        return [block for block in found if language in (None, block.language)]

    def block_after(self, page: str, words: str) -> Block:
        """The block whose paragraph before it contains `words`."""
        (found,) = [block for block in self.blocks(page) if words in block.before]
        return found

    def tables(self, page: str, section: str) -> list[list[list[str]]]:
        """The tables of a section, each a list of rows without the head, each row its cells."""
        text = self.text(page).split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
        tables = re.findall(r"^\|.*\n\|[ |:-]+\n((?:\|.*\n?)+)", text, re.MULTILINE)
        return [[_cells(row) for row in table.strip().splitlines()] for table in tables]


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


class Sandbox:
    """A folder that looks like the root of the repository to the commands of the documentation."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.site = path / "site"
        (path / "docs").symlink_to(ROOT / "docs")

    def call(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a `scepter` command in this process, which has loaded torch already."""
        out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
        words = shlex.split(command, comments=True)
        os.chdir(self.path)
        try:
            with redirect_stdout(out), redirect_stderr(err):
                status = main(words[1:])
        finally:
            os.chdir(before)
        return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())

    def run(self, command: str | Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a `scepter` or `pip install` command of the documentation; what pip installs stays in the sandbox."""
        words = shlex.split(command, comments=True) if isinstance(command, str) else list(command)
        if words[0] == "scepter":
            words = [sys.executable, "-m", "scepter_core", *words[1:]]
        elif words[:2] == ["pip", "install"]:
            options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(self.site)]
            words = [sys.executable, "-m", "pip", "install", *options, *words[2:]]
        path = os.pathsep.join(filter(None, (str(self.site), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(words, cwd=self.path, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="session")
def docs() -> Docs:
    return Docs()


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return Sandbox(tmp_path_factory.mktemp("sandbox"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `page` runs for each page, one that takes `yaml_block` for each YAML block."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", Docs.pages)
    if "yaml_block" in metafunc.fixturenames:
        blocks = [block for page in Docs.pages for block in Docs().blocks(page, "yaml") if not block.is_for_the_readme]
        metafunc.parametrize("yaml_block", blocks, ids=str)
