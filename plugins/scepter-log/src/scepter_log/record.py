"""What is logged: one record, the event that carries it, and its two written forms."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from scepter_core import hookspec

if TYPE_CHECKING:
    from scepter_core import BaseSolver


@dataclass(frozen=True, slots=True)
class LogRecord:
    """The values of a window of iterations, or of a mode's epoch.

    Attributes:
        mode: `train`, `eval` or `test`.
        epoch: the training epoch under way, or just trained; from 1.
        step: completed training steps, in every mode.
        updates: completed updates.
        kind: `iter`: means over the iterations since the last record, and the learning rates; `epoch`: the epoch's
            metrics.
        values: by name. Two equal runs have equal values.
        timing: all that a clock or the machine decides. Seconds: `data_time` (waiting for a batch) and `step_time`
            (the rest of an iteration), means per iteration, `elapsed` since the start, `remaining` where it is known;
            `throughput` in samples a second, of all processes; `gpu_memory` in MiB, the peak, where asked for.
    """

    mode: str
    epoch: int
    step: int
    updates: int
    kind: Literal["iter", "epoch"]
    values: Mapping[str, float]
    timing: Mapping[str, float] = field(default_factory=dict)


class LogEvents:
    """The event that scepter-log brings."""

    @hookspec(scope="run")
    def on_log(self, solver: BaseSolver, record: LogRecord) -> None:
        """A record was logged: once a window and once a mode's epoch, on the first process only.

        The values are plain numbers, read from the device together; a sink that listens here costs no further
        synchronisation. Nothing in the record may be changed.
        """


def to_json(record: LogRecord) -> str:
    """The record as one line of metrics.jsonl, without the line's end.

    JSON has no numbers that are not finite: they are the strings "NaN", "Infinity" and "-Infinity", which
    `float()` of Python and `Number()` of JavaScript read back.
    """
    row = asdict(record)
    for part in ("values", "timing"):
        row[part] = {name: _finite(value) for name, value in row[part].items()}
    return json.dumps(row, allow_nan=False)


def _finite(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def number(value: float) -> str:
    """A value as a line shows it: four decimals, or an exponent where they would hide it."""
    readable = value == 0 or 1e-3 <= abs(value) < 1e6 or not math.isfinite(value)
    return f"{value:.4f}" if readable else f"{value:.3e}"


def rate(per_second: float) -> str:
    """A throughput as a line shows it: three digits, `5.31k`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if per_second >= size:
            return f"{per_second / size:.3g}{unit}"
    return f"{per_second:.3g}"


def clock(seconds: float) -> str:
    """A duration as a line shows it: `1:02:03`."""
    return str(timedelta(seconds=int(seconds)))
