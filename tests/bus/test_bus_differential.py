"""Whatever the hooks: the bus makes the same calls, in the same order, with the same end, as pluggy alone."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import pluggy
from hypothesis import given, settings
from hypothesis import strategies as st

from scepter_core.bus import EventBus, Hook, hookimpl, hookspec
from scepter_core.sections import HookConfig

ARGUMENTS = {"on_one": ("solver",), "on_many": ("solver", "mode", "record"), "on_first": ("solver", "record")}
VALUES = {"solver": "S", "mode": "train", "record": 7}


class Events:
    @hookspec
    def on_one(self, solver): ...

    @hookspec
    def on_many(self, solver, mode, record): ...

    @hookspec(firstresult=True)
    def on_first(self, solver, record): ...


@dataclass(frozen=True)
class Act:
    """One implementation: how it is marked, what it takes, and what it does before and after a yield."""

    event: str
    place: str
    style: str
    arguments: tuple[str, ...]
    before: str
    after: str


@st.composite
def acts(draw: st.DrawFn, event: str) -> Act:
    style = draw(st.sampled_from(["plain", "plain", "plain", "wrapper", "hookwrapper"]))
    wanted = draw(st.lists(st.sampled_from(ARGUMENTS[event]), unique=True))
    before = draw(st.sampled_from(["none", "none", "none", "value", "raise"]))
    after = draw(st.sampled_from(["pass", "pass", "replace", "raise", "swallow", "again", "return"]))
    if style == "hookwrapper" and after == "again":
        after = "pass"  # pluggy leaves such a one to the garbage collector, with a warning at any time
    return Act(
        event, draw(st.sampled_from(["", "", "tryfirst", "trylast"])), style, tuple(wanted), before, after
    )


HOOKS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.tuples(*(st.none() | acts(event) for event in ARGUMENTS)).map(
            lambda found: [a for a in found if a]
        ),
    ),
    max_size=6,
)


def method(act: Act, label: str, trace: list[object]):
    """The act as a method: every step goes to `trace`."""
    scope = {"step": lambda *what: trace.append((label, act.event, *what)), "label": label}
    seen = f"({', '.join(act.arguments)}{',' if act.arguments else ''})"
    lines = [
        f"def {act.event}(self{''.join(', ' + name for name in act.arguments)}):",
        f"    step('called', {seen})",
    ]
    if act.before == "raise":
        lines.append("    raise ValueError(label)")
    if act.style == "plain":
        lines.append(f"    return {'label' if act.before == 'value' else 'None'}")
    elif act.after == "return":
        lines += ["    return None", "    yield"]
    elif act.style == "wrapper":
        lines += [
            "    try:",
            "        result = yield",
            "    except Exception as error:",
            "        step('saw', str(error))",
        ]
        lines.append("        return label" if act.after == "swallow" else "        raise")
        lines += ["    step('got', result)", *ending(act)]
    else:
        lines += [
            "    outcome = yield",
            "    step('outcome', str(outcome.exception), outcome.exception or outcome.get_result())",
        ]
        lines += ["    outcome.force_result(label)"] if act.after in ("swallow", "replace") else ending(act)
    exec("\n".join(lines), scope)
    function = scope[act.event]
    function.__qualname__ = f"Made.{act.event}"
    marks = {act.place: True} if act.place else {}
    if act.style != "plain":
        marks[act.style] = True
    return hookimpl(**marks)(function) if marks else function


def ending(act: Act) -> list[str]:
    endings = {"replace": "return label", "raise": "raise KeyError(label)", "again": "yield"}
    return [f"    {endings.get(act.after, 'return result' if act.style == 'wrapper' else 'return')}"]


def through_the_bus(hooks, trace: list[object]):
    bus = EventBus()

    class Brings(Hook):
        events = Events

    bus.register(Brings(HookConfig(name="Brings")), "train")
    for number, (priority, found) in enumerate(hooks):
        body = {act.event: method(act, f"h{number}", trace) for act in found}
        bus.register(type("Made", (Hook,), body)(HookConfig(name="Made", priority=priority)), "train")
    bus.freeze()
    return lambda event: getattr(bus.on["train"], event)(*(VALUES[name] for name in ARGUMENTS[event]))


def through_pluggy(hooks, trace: list[object]):
    manager = pluggy.PluginManager("scepter")
    manager.add_hookspecs(Events)
    in_order = sorted(enumerate(hooks), key=lambda item: item[1][0])
    early, late = [], []
    for number, (_, found) in in_order:
        for act in found:
            made = method(act, f"h{number}", trace)
            plugin = type(
                "Made", (), {act.event: made if hasattr(made, "scepter_impl") else hookimpl(made)}
            )()
            (late if act.place == "trylast" else early).append(plugin)
    for plugin in [*reversed(early), *late]:
        manager.register(plugin)

    def emit(event: str):
        result = getattr(manager.hook, event)(**{name: VALUES[name] for name in ARGUMENTS[event]})
        return result if event == "on_first" else None

    return emit


def what_happens(make, hooks) -> list[object]:
    trace: list[object] = []
    emit = make(hooks, trace)
    for event in ARGUMENTS:
        try:
            trace.append(("returned", event, emit(event)))
        except Exception as error:
            text = str(error).partition(" at ")[0]  # pluggy adds the line of a wrapper that misbehaves
            trace.append(("raised", event, type(error).__name__, text))
    return [tuple(str(part) for part in step) for step in trace]


@settings(max_examples=400, deadline=None)
@given(hooks=HOOKS)
def test_the_compiled_path_is_pluggys(hooks):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pluggy.PluggyTeardownRaisedWarning)
        assert what_happens(through_the_bus, hooks) == what_happens(through_pluggy, hooks)
