"""Reading a checkpoint file of another system without running anything that it asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scepter_core.checkpoints import damage_of
from scepter_core.errors import ConfigError, RunError

_ZIP = b"PK\x03\x04"


class Counts(dict[Any, Any]):
    """What a `collections.defaultdict` in the file becomes while it is read: a dict without a factory."""

    def __init__(self, *ignored: Any) -> None:
        super().__init__()


class NoFactory:
    """What `int`, the factory of such a defaultdict, becomes: nothing that does anything."""

    def __init__(self, *ignored: Any) -> None:
        pass


def read(local: str, path: str) -> Any:
    """What is in the local file `local`, which messages call `path`: plain values and tensors (on the CPU), dicts as plain dicts.

    Reading is torch's restricted one (`weights_only`), in which a file can name tensors and nothing else. SCEPTER's files
    also name `collections.defaultdict` and `int`; stand-ins that do nothing take their place.

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
    stand_ins: list[Any] = [(Counts, "collections.defaultdict"), (NoFactory, "builtins.int")]
    try:
        with torch.serialization.safe_globals(stand_ins):
            found = torch.load(local, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever a strange file leads it to
        raise RunError(f"cannot read {path}: {_reason(error)}") from None
    return plain(found, path)


def plain(value: Any, path: str) -> Any:
    """The value with every mapping as a dict and every parameter as a tensor.

    Raises:
        RunError: there is something else in it than numbers, text, tensors, and lists and dicts of them.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, dict):
        return {plain(key, path): plain(entry, path) for key, entry in value.items()}
    if type(value) in (list, tuple, torch.Size):
        return type(value)(plain(entry, path) for entry in value)
    if value is None or isinstance(value, bool | int | float | str | bytes | torch.dtype | torch.device):
        return value
    raise RunError(f"cannot convert {path}: it holds a {type(value).__module__}.{type(value).__qualname__}")


def _reason(error: Exception) -> str:
    """Why torch did not read it, in one line without torch's advice to allow more."""
    text = " ".join(str(error).split())
    if "Unsupported global: GLOBAL " in text:
        name = text.split("Unsupported global: GLOBAL ", 1)[1].split(" ", 1)[0]
        return f"it names {name}; a checkpoint is read without running code, and may hold numbers, text and tensors only"
    return f"it is damaged or no checkpoint ({text.split('. ')[0][:200] or type(error).__name__})"
