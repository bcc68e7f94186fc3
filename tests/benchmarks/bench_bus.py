"""What an event costs: a direct loop, the bus, and pluggy's own call, for several numbers of hooks.

    python tests/benchmarks/bench_bus.py

Prints nanoseconds a call. The three are timed in turns, so that what disturbs the machine disturbs all; medians.
"""

from __future__ import annotations

from statistics import median
from timeit import Timer

import pluggy

from scepter_core.bus import CoreEvents, EventBus, Hook, hookimpl
from scepter_core.sections import HookConfig

COUNTS = (0, 1, 4, 8, 64)
ROUNDS = 25
SECONDS_A_ROUND = 0.004
STATEMENTS = (
    "for hook in hooks: hook.after_iter(solver)",
    "on.after_iter(solver)",
    "relay.after_iter(solver=solver)",
)


class Empty(Hook):
    @hookimpl
    def after_iter(self, solver: object) -> None:
        pass


def bus_of(hooks: list[Hook]) -> EventBus:
    bus = EventBus()
    for hook in hooks:
        bus.register(hook, "train")
    bus.freeze()
    return bus


def manager_of(hooks: list[Hook]) -> pluggy.PluginManager:
    manager = pluggy.PluginManager("scepter")
    manager.add_hookspecs(CoreEvents)
    for hook in reversed(hooks):
        manager.register(hook)
    return manager


def measure(count: int) -> list[float]:
    """Nanoseconds a call of the loop, the bus and pluggy, with `count` hooks."""
    hooks: list[Hook] = [Empty(HookConfig(name="Empty", priority=number)) for number in range(count)]
    names = {
        "hooks": hooks,
        "on": bus_of(hooks).on["train"],
        "relay": manager_of(hooks).hook,
        "solver": object(),
    }
    timers = [Timer(statement, globals=names) for statement in STATEMENTS]
    calls = [max(10, int(SECONDS_A_ROUND / (timer.timeit(200) / 200))) for timer in timers]
    rounds = [
        [timer.timeit(n) / n * 1e9 for timer, n in zip(timers, calls, strict=True)] for _ in range(ROUNDS)
    ]
    return [median(column) for column in zip(*rounds, strict=True)]


def main() -> None:
    """Print the table."""
    print(f"{'hooks':>5} {'loop':>9} {'bus':>9} {'pluggy':>9}   bus/loop  pluggy/bus")
    for count in COUNTS:
        loop, bus, plug = measure(count)
        print(f"{count:>5} {loop:>9.0f} {bus:>9.0f} {plug:>9.0f}   {bus / loop:>8.2f}  {plug / bus:>10.1f}")


if __name__ == "__main__":
    main()
