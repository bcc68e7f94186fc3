"""The arguments and options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, TypeAlias

import typer

Work: TypeAlias = Callable[[], int]
"""What a command returns: does the work, and returns the exit status."""

ConfigFile = Annotated[str, typer.Argument(metavar="CFG", help="The YAML file.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="OVERRIDES",
        help="KEY.PATH=VALUE, the value as in YAML: SOLVER.MAX_EPOCHS=3, SOLVER.TRAIN_HOOKS[LogHook].LOG_INTERVAL=1.",
        show_default=False,
    ),
]
Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        "-p",
        metavar="MODULE",
        help="Import this file or module first, as if PLUGINS named it. Can be repeated.",
        show_default=False,
    ),
]
Disabled = Annotated[
    list[str] | None,
    typer.Option(
        "--disable-plugin",
        metavar="NAME",
        help="Do as if this plugin, or this distribution, were not installed. Can be repeated.",
        show_default=False,
    ),
]
Processes = Annotated[
    int | None,
    typer.Option("--nproc", min=1, metavar="N", help="Run in so many processes on this machine.", show_default=False),
]
Machines = Annotated[
    int, typer.Option("--nnodes", min=1, metavar="N", help="Machines of the run; start the command on each.")
]
MachineNumber = Annotated[
    int | None,
    typer.Option(
        "--node-rank",
        min=0,
        metavar="N",
        help="This machine's number, from 0: they meet at that of number 0. Default: they find out.",
        show_default=False,
    ),
]
Endpoint = Annotated[
    str,
    typer.Option(
        "--rdzv-endpoint", metavar="HOST:PORT", help="Where the machines meet: at one of them.", show_default=False
    ),
]
Restarts = Annotated[
    int,
    typer.Option(
        "--max-restarts", min=0, metavar="N", help="How often to go on from the last checkpoint after a failure."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_TIME = re.compile(r"(?:\d+d)?(?:\d+h)?(?:\d+m)?(?:\d+(?:\.\d+)?s)?")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def seconds(text: str) -> float:
    """The seconds that `1h30m`, `5m`, `90s`, `2d` or a plain number of seconds says.

    Raises:
        typer.BadParameter: it is none of these, or zero.
    """
    if _NUMBER.fullmatch(text):
        total = float(text)
    elif _TIME.fullmatch(text):
        total = sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([dhms])", text))
    else:
        total = 0.0
    if total <= 0:
        raise typer.BadParameter(f"{text!r} is not a time such as 1h30m, 5m, 90s or 3600 (seconds)")
    return total
