"""The standard solver."""

from __future__ import annotations

from scepter_core.solver.base import BaseSolver


class TrainValSolver(BaseSolver):
    """Training with evaluation and test of one model by one optimizer: `NAME: TrainValSolver`."""
