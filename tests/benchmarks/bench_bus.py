"""What an event costs: a direct loop, the bus, and pluggy's own call, for several numbers of hooks.

    python tests/benchmarks/bench_bus.py

Prints nanoseconds a call. The three are timed in turns, so that what disturbs the machine disturbs all; medians.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import pluggy

from scepter_core.bus import CoreEvents, EventBus, Hook, hookimpl
from scepter_core.sections import HookConfig

COUNTS = (0, 1, 4, 8, 64)
ROUNDS = 25
SECONDS_A_ROUND = 0.004


class Empty(Hook):
    @hookimpl
    def after_iter(self, solver: object) -> None:
        pass


def direct_loop(hooks: list[Hook]) -> Callable[[object], object]:
    def emit(solver: object) -> None:
        for hook in hooks:
            hook.after_iter(solver)  # type: ignore[arg-type]

    return emit


def through_the_bus(hooks: list[Hook]) -> Callable[[object], object]:
    bus = EventBus()
    for hook in hooks:
        bus.register(hook, "train")
    bus.freeze()
    on = bus.on["train"]
    return lambda solver: on.after_iter(solver)


def through_pluggy(hooks: list[Hook]) -> Callable[[object], object]:
    manager = pluggy.PluginManager("scepter")
    manager.add_hookspecs(CoreEvents)
    for hook in reversed(hooks):
        manager.register(hook)
    relay = manager.hook
    return lambda solver: relay.after_iter(solver=solver)


def nanoseconds(emit: Callable[[object], object], calls: int) -> float:
    solver = object()
    start = time.perf_counter_ns()
    for _ in range(calls):
        emit(solver)
    return (time.perf_counter_ns() - start) / calls


def measure(count: int) -> list[float]:
    hooks: list[Hook] = [Empty(HookConfig(name="Empty", priority=number)) for number in range(count)]
    ways = [make(hooks) for make in (direct_loop, through_the_bus, through_pluggy)]
    calls = [max(10, int(SECONDS_A_ROUND * 1e9 / nanoseconds(way, 200))) for way in ways]
    rounds = [[nanoseconds(way, number) for way, number in zip(ways, calls, strict=True)] for _ in range(ROUNDS)]
    return [median(column) for column in zip(*rounds, strict=True)]


def main() -> None:
    """Print the table."""
    print(f"{'hooks':>5} {'loop':>9} {'bus':>9} {'pluggy':>9}   bus/loop  pluggy/bus")
    for count in COUNTS:
        loop, bus, plug = measure(count)
        print(f"{count:>5} {loop:>9.0f} {bus:>9.0f} {plug:>9.0f}   {bus / loop:>8.2f}  {plug / bus:>10.1f}")


if __name__ == "__main__":
    main()
