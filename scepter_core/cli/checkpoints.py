"""`scepter checkpoints`: what a run has saved."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scepter_core.cli.options import Json, Work
from scepter_core.cli.output import print_json
from scepter_core.cli.tables import Cell, print_table
from scepter_core.errors import ConfigError

if TYPE_CHECKING:
    from scepter_core.checkpoints import CheckpointInfo

_SHOWN_METRICS = 4


def checkpoints(
    work_dir: Annotated[str, typer.Argument(metavar="WORK_DIR", help="The folder of a run.", show_default=False)],
    as_json: Json = False,
) -> Work:
    """List the checkpoints of a run.

    The one that has come furthest stands first, damaged files last.
    """
    return partial(_checkpoints, work_dir, as_json)


def _checkpoints(work_dir: str, as_json: bool) -> int:
    from scepter_core.checkpoints import FOLDER, list_checkpoints
    from scepter_core.io import RunFileSystem

    files = RunFileSystem()
    work_dir = files.without_password(work_dir)
    if not files.isdir(work_dir):
        hint = "; give the folder that is its WORK_DIR" if files.isfile(work_dir) else ""
        raise ConfigError(f"{work_dir} is no folder{hint}")
    infos = list_checkpoints(work_dir, files)
    newest = infos[0] if infos and infos[0].damage is None else None
    if as_json:
        print_json([_as_json(info, info is newest) for info in infos])
    elif not infos:
        print(f"no checkpoints in {files.join(work_dir, FOLDER)}")
    else:
        titles = ("FILE", "STEP", "EPOCH", "UPDATES", "SIZE", "STATE", "METRICS")
        rows = [_row(info, info is newest) for info in infos]
        print_table(titles, rows, right=("STEP", "EPOCH", "UPDATES", "SIZE"))
    return 0


def _row(info: CheckpointInfo, newest: bool) -> list[Cell]:
    file, size = Path(info.path).name, _size(info.size)
    if info.damage is not None:
        return [file, "", "", "", size, ("damaged", "red"), info.damage]
    state = ("newest", "green") if newest else "whole"
    return [file, str(info.step), str(info.epoch), str(info.updates), size, state, _metrics(info.metrics or {})]


def _metrics(by_mode: dict[str, dict[str, float]]) -> str:
    """The metrics that a run is judged by: eval's, else test's, else those of the training."""
    for mode in ("eval", "test", "train"):
        values = by_mode.get(mode)
        if values:
            shown = [f"{name} {value:.4g}" for name, value in list(values.items())[:_SHOWN_METRICS]]
            more = len(values) - len(shown)
            return f"{mode}: {', '.join(shown)}" + (f", {more} more" if more else "")
    return ""


def _size(size: int) -> str:
    """Bytes in a unit that keeps the number short: `1.4 MiB`."""
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{size} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def _as_json(info: CheckpointInfo, newest: bool) -> dict[str, Any]:
    whole = info.damage is None
    return {
        "file": Path(info.path).name,
        "path": info.path,
        "size": info.size,
        "step": info.step if whole else None,
        "epoch": info.epoch if whole else None,
        "updates": info.updates if whole else None,
        "metrics": info.metrics,
        "damage": info.damage,
        "newest": newest,
    }
