"""The linters are part of the test command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {
    "ruff": [sys.executable, "-m", "ruff", "check", "."],
    "mypy": [sys.executable, "-m", "mypy", "scepter_core", *map(str, sorted(ROOT.glob("plugins/*/src")))],
    "import walls": [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_clean(name):
    done = subprocess.run(COMMANDS[name], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
