"""What one process is asked, all do, and at the same step: a signal reaches each at another moment."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from scepter_core.distributed.processes import Processes

_SECONDS = 0.25  # between two exchanges, about
_MOST = 256  # steps between two exchanges


class Agreement:
    """Tells all processes of a run what one of them was asked.

    Every process calls `exchange` between two steps. Every few steps it begins an exchange beside the step, whose result
    the next call has: nobody waits. How many steps lie between two exchanges follows from how long they take, and is part
    of what is exchanged.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self._in_flight: tuple[Any, torch.Tensor] | None = None
        self._wait = 1  # steps to the next exchange
        self._began, self._steps = time.monotonic(), 0

    def exchange(self, stop: int, save: bool) -> tuple[int, bool]:
        """What was asked of any process: the number of a signal to stop for (0: none), and whether to save.

        Args:
            stop, save: what was asked of this one. It is kept asking until the result says so.
        """
        if self.processes.world_size == 1:
            return stop, save
        agreed = self._result()
        self._steps += 1
        if agreed == (0, False) and self._steps >= self._wait:
            self._begin(stop, save)
        return agreed

    def _begin(self, stop: int, save: bool) -> None:
        now = time.monotonic()
        fitting = int(_SECONDS * max(self._steps, 1) / max(now - self._began, 1e-6))
        self._began, self._steps = now, 0
        asked = torch.tensor([stop, int(save), -max(1, min(fitting, _MOST))])
        self._in_flight = (dist.all_reduce(asked, op=dist.ReduceOp.MAX, async_op=True), asked)

    def _result(self) -> tuple[int, bool]:
        if self._in_flight is None:
            return 0, False
        work, asked = self._in_flight
        work.wait()
        self._in_flight = None
        stop, save, wait = asked.tolist()
        self._wait = -wait
        return int(stop), bool(save)
