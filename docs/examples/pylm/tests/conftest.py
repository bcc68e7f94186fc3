from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Sixty files of seven characters each, and some that are no part of it."""
    folder = tmp_path / "library"
    (folder / "site-packages").mkdir(parents=True)
    for number in range(60):
        (folder / f"m{number:02}.py").write_text(f"x = {number:02}\n")
    (folder / "site-packages/other.py").write_text("y")
    (folder / "notes.txt").write_text("z")
    return folder
