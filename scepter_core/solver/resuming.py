"""Which checkpoint a run goes on from: found, read by all processes, and passed over where one of them finds it damaged."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from scepter_core.checkpoints import find_checkpoint, read_checkpoint
from scepter_core.errors import RunError

if TYPE_CHECKING:
    from scepter_core.solver.base import BaseSolver


def load_from(solver: BaseSolver, wanted: str) -> str | None:
    """As `BaseSolver.load_from`."""
    passed: list[str] = []
    find = partial(find_checkpoint, solver.work_dir, wanted, solver.logger.warning, solver.file_system, passed)
    while path := solver.processes.of_first(find):
        state, reason = _read(solver, path)
        if reason is None:
            try:
                solver.load_checkpoint(state)
            except RunError as error:
                raise RunError(f"{path}: {error}" if path not in str(error) else str(error)) from error.__cause__
            return path
        if wanted != "auto":
            raise RunError(reason)
        reason = reason.removeprefix(f"cannot read the checkpoint {path}: ")
        solver.logger.warning("passing over the checkpoint %s: %s", path, reason)
        passed.append(path)
    return None


def _read(solver: BaseSolver, path: str) -> tuple[dict[str, Any], str | None]:
    """The checkpoint, of which each process verifies a share; and why it cannot be read, if one of them found that."""
    state, reason, share = {}, None, (solver.rank, solver.world_size)
    try:
        state = read_checkpoint(path, solver.file_system, whole=not solver.strategy.sharded, share=share)
    except RunError as error:
        reason = str(error)
    return state, next(filter(None, solver.processes.gather(reason)), None)
