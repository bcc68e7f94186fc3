"""File names for names that a model chose."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_LONGEST = 50  # characters: with an extension, below the 255 bytes of common file systems in any script


def file_names(names: Iterable[str]) -> dict[str, str]:
    """A file name (without extension) for each of `names`, all different, on any file system, within one folder.

    A name that is fit as it stands keeps it; of others, what is not a letter, digit, `_`, `-` or `.` becomes `_`, and a
    number tells them apart where that makes them equal.
    """
    chosen: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(names, key=lambda name: _clean(name) != name):
        stem, number = _clean(name), 1
        candidate = stem
        while candidate.casefold() in taken:
            number += 1
            candidate = f"{stem}-{number}"
        taken.add(candidate.casefold())
        chosen[name] = candidate
    return chosen


def _clean(name: str) -> str:
    text = re.sub(r"[^\w.-]", "_", unicodedata.normalize("NFC", name))
    return text.lstrip(".")[:_LONGEST] or "_"
