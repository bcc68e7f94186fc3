"""Solvers: the loop that emits events."""

from scepter_core.solver.base import BaseSolver
from scepter_core.solver.engine import Engine, NativeEngine
from scepter_core.solver.setup import choose_device
from scepter_core.solver.train_val import TrainValSolver

__all__ = ["BaseSolver", "Engine", "NativeEngine", "TrainValSolver", "choose_device"]
