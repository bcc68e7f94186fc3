"""Reading a checkpoint file of another system without running anything that it asks for."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from scepter_core.checkpoints import damage_of, why_unread
from scepter_core.errors import ConfigError, RunError

_ZIP = b"PK\x03\x04"
_DEPTH = 50  # how deep a checkpoint's lists and dicts are nested at most


def _counts(*ignored: Any) -> dict[Any, Any]:
    """What a `collections.defaultdict` in the file is made by: a dict without a factory."""
    return {}


def _number(*ignored: Any) -> None:
    """What stands for `int`, the factory of such a defaultdict."""


def read(local: str, path: str) -> Any:
    """What is in the local file `local`, which messages call `path`: plain values and tensors (on the CPU), dicts as plain dicts.

    Reading is torch's restricted one (`weights_only`), in which a file can name tensors and nothing else. SCEPTER's
    files also name `collections.defaultdict` and `int`; stand-ins that do nothing take their place.

    Raises:
        ConfigError: there is no such file.
        RunError: it is damaged, or holds anything else.
    """
    import torch

    file = Path(local)
    if not file.is_file():
        raise ConfigError(f"{path}: {'a folder, not a file' if file.is_dir() else 'there is no such file'}")
    with file.open("rb") as opened:
        is_archive = opened.read(len(_ZIP)) == _ZIP  # older files of torch are none, and carry no checksums
    damage = damage_of(local) if is_archive or file.stat().st_size == 0 else None
    if damage is not None:
        raise RunError(f"cannot read {path}: {damage}")
    stand_ins: list[Any] = [(_counts, "collections.defaultdict"), (_number, "builtins.int")]
    try:
        with torch.serialization.safe_globals(stand_ins), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a strange file's pickle
            found = torch.load(local, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever a strange file leads it to
        raise RunError(f"cannot read {path}: {why_unread(error)}") from None
    try:
        return _Plain().of(found)
    except ValueError as error:
        raise RunError(f"cannot convert {path}: {error}") from None


class _Plain:
    """Values with every mapping as a dict and every parameter as a tensor; what is there twice is copied once."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self._depth = 0

    def of(self, value: Any) -> Any:
        """The plain form of the value.

        Raises:
            ValueError: there is something else in it than numbers, text, tensors, and lists and dicts of them.
        """
        import torch

        if value is None or isinstance(value, bool | int | float | str | bytes | torch.dtype | torch.device):
            return value
        if isinstance(value, torch.Tensor):
            if value.is_meta:
                raise ValueError("it holds a tensor without its numbers")
            return value.detach()
        if isinstance(value, dict) or type(value) in (list, tuple, torch.Size):
            if id(value) not in self._made:
                self._made[id(value)] = self._container(value)
            return self._made[id(value)]
        raise ValueError(f"it holds a {type(value).__module__}.{type(value).__qualname__}")

    def _container(self, value: Any) -> Any:
        if self._depth == _DEPTH:  # a list that contains itself comes here too
            raise ValueError(f"its lists and dicts are nested more than {_DEPTH} deep")
        self._depth += 1
        if isinstance(value, dict):
            made: Any = {self.of(key): self.of(entry) for key, entry in value.items()}
        else:
            made = type(value)([self.of(entry) for entry in value])
        self._depth -= 1
        return made
