"""Many processes: how they start, meet, agree and end, and how a model spreads over them; the engine below is torch's."""

from scepter_core.distributed.agreement import Agreement
from scepter_core.distributed.processes import (
    Place,
    Processes,
    check_backend,
    join,
    leave,
    place_of,
    say_over,
    say_told,
)
from scepter_core.distributed.strategies import Strategy, find_strategy, make_strategy, strategy_names
from scepter_core.distributed.watching import Watch

__all__ = [
    "Agreement",
    "Place",
    "Processes",
    "Strategy",
    "Watch",
    "check_backend",
    "find_strategy",
    "join",
    "leave",
    "make_strategy",
    "place_of",
    "say_over",
    "say_told",
    "strategy_names",
]
