"""The source code of the standard library as a stream of windows of characters."""

from __future__ import annotations

import hashlib
import random
import string
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from scepter_core import ConfigError, Problem

CHARACTERS = "\n" + "".join(sorted(set(string.printable) - set(string.whitespace) | {" "})) + "\N{REPLACEMENT CHARACTER}"
_NUMBER = {character: number for number, character in enumerate(CHARACTERS)}
_UNKNOWN = len(CHARACTERS) - 1
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


def encode(text: str) -> Tensor:
    """The characters as int64 numbers; those that are not in CHARACTERS become the last one."""
    return torch.tensor([_NUMBER.get(character, _UNKNOWN) for character in text.expandtabs(4)], dtype=torch.int64)


def decode(numbers: Tensor) -> str:
    """The text of such numbers."""
    return "".join(CHARACTERS[number] for number in numbers.tolist())


def source_files(split: Literal["train", "eval"], root: str | None = None, one_in: int = 20) -> list[Path]:
    """The Python files of a part, sorted: of every `one_in` files about one is held out for eval, by its name alone.

    Args:
        root: the folder; by default that of the standard library that runs this.
    """
    folder = Path(root or sysconfig.get_path("stdlib"))
    files = [path for path in sorted(folder.rglob("*.py")) if not _LEFT_OUT & set(path.relative_to(folder).parts[:-1])]
    return [path for path in files if _is_held_out(path.relative_to(folder), one_in) == (split == "eval")]


def _is_held_out(path: Path, one_in: int) -> bool:
    return int.from_bytes(hashlib.sha256(path.as_posix().encode()).digest()[:8], "big") % one_in == 0


class PythonSource(IterableDataset[dict[str, Tensor]]):
    """Windows of text; in training in a new order in each pass, mixed among the files of a group.

    A stream without a length. It knows where it stands, so that a resumed run reads nothing twice.

    Args:
        split: the part: `train`, or the held-out files, `eval`.
        context: characters that a window predicts; it has one more.
        every: of the windows of a pass, only every n-th: less of each file, and of all files.
        group: files whose windows are mixed.
        root: the folder; by default that of the standard library.

    Yields:
        `text`: context + 1 characters, int64.

    Raises:
        ConfigError: there are no files.
    """

    def __init__(
        self,
        split: Literal["train", "eval"] = "train",
        context: PositiveInt = 128,
        every: PositiveInt = 1,
        group: PositiveInt = 32,
        root: str | None = None,
    ) -> None:
        self.split, self.context, self.every, self.group = split, context, every, group
        self.files = source_files(split, root)
        if not self.files:
            folder = root or f"{sysconfig.get_path('stdlib')}, the standard library"
            hint = "name a folder with the source code of more files in ROOT"
            raise ConfigError([Problem(f"PythonSource has no .py files for SPLIT: {split}", found=folder, hint=hint)])
        self._state: dict[str, int] = {}

    def state_dict(self) -> dict[str, Any]:
        """Which pass this is, how many groups of files it is through, and how many windows of the present one and of all."""
        return dict(self._state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._state = dict(state)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        worker = get_worker_info()
        files = self.files[worker.id :: worker.num_workers] if worker else list(self.files)
        state = self._state = self._state or {"pass": random.getrandbits(62), "group": 0, "window": 0, "passed": 0}
        draw = random.Random(state["pass"])
        if self.split == "train":
            draw.shuffle(files)
        orders = [(files[start : start + self.group], draw.getrandbits(62)) for start in range(0, len(files), self.group)]
        for group, order in orders[state["group"] :]:
            for text in self._mixed(group, order)[state["window"] :]:
                state["window"] += 1
                state["passed"] += 1
                if (state["passed"] - 1) % self.every == 0:
                    yield {"text": text}
            state["group"], state["window"] = state["group"] + 1, 0
        self._state = {}

    def _mixed(self, files: list[Path], order: int) -> list[Tensor]:
        windows = [window for file in files for window in self._windows(file)]
        if self.split == "train":
            random.Random(order).shuffle(windows)
        return windows

    def _windows(self, file: Path) -> list[Tensor]:
        text = encode(file.read_text(encoding="utf-8", errors="replace"))
        count = (len(text) - 1) // self.context
        return [text[start * self.context : (start + 1) * self.context + 1] for start in range(count)]
