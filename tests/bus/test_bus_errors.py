"""Exceptions of hooks: they name the hook, and where every hook has to be told, every hook is."""

from __future__ import annotations

import signal

import pytest

from scepter_core.bus import EventBus, Hook, hookimpl, hookspec
from scepter_core.errors import Stopped
from scepter_core.sections import HookConfig

HERE = "test_bus_errors.py"
WHERE = "train epoch 1, iteration 3"


def make(kind: type[Hook], priority: int = 0) -> Hook:
    return kind(HookConfig(name=kind.__name__, priority=priority))


def bus_of(*hooks: Hook, describe=lambda: WHERE) -> EventBus:
    bus = EventBus(describe=describe)
    for hook in hooks:
        bus.register(hook, "train")
    bus.freeze()
    return bus


class Fails(Hook):
    def after_iter(self, solver):
        raise ValueError("broken")

    def on_metrics(self, solver, mode, metrics):
        raise ValueError("broken")


class Quiet(Hook):
    def after_iter(self, solver): ...

    def on_metrics(self, mode): ...


class Wraps(Hook):
    @hookimpl(wrapper=True)
    def after_iter(self, solver):
        return (yield)


@pytest.mark.parametrize("others", [[], [Quiet], [Wraps], [Quiet, Wraps, Wraps]])
def test_the_note_names_class_origin_event_and_place(others):
    bus = bus_of(make(Quiet), make(Fails), *(make(kind) for kind in others))
    with pytest.raises(ValueError, match="broken") as caught:
        bus.on["train"].after_iter(None)
    assert caught.value.__notes__ == [f"raised by Fails ({HERE}) in after_iter, {WHERE}"]


def test_the_note_in_an_event_of_several_arguments():
    with pytest.raises(ValueError, match="broken") as caught:
        bus_of(make(Quiet), make(Fails)).on["train"].on_metrics(None, "eval", {})
    assert caught.value.__notes__ == [f"raised by Fails ({HERE}) in on_metrics, {WHERE}"]


def test_the_note_without_a_place():
    with pytest.raises(ValueError, match="broken") as caught:
        bus_of(make(Fails), describe=str).on["train"].after_iter(None)
    assert caught.value.__notes__ == [f"raised by Fails ({HERE}) in after_iter"]


def test_later_hooks_are_not_called_after_an_error():
    calls: list[str] = []

    class Later(Hook):
        def after_iter(self, solver):
            calls.append("later")

    with pytest.raises(ValueError, match="broken"):
        bus_of(make(Fails), make(Later)).on["train"].after_iter(None)
    assert calls == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failing_wrapper_is_the_one_named(when):
    class Bad(Hook):
        @hookimpl(wrapper=True)
        def after_iter(self, solver):
            if when == "before":
                raise KeyError("mine")
            yield
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        bus_of(make(Bad), make(Quiet), make(Wraps)).on["train"].after_iter(None)
    assert caught.value.__notes__ == [f"raised by Bad ({HERE}) in after_iter, {WHERE}"]


def test_a_wrapper_may_swallow_or_replace_an_error():
    class Swallows(Hook):
        @hookimpl(wrapper=True)
        def after_iter(self, solver):
            try:
                yield
            except ValueError:
                return

    class Replaces(Hook):
        @hookimpl(wrapper=True)
        def after_iter(self, solver):
            try:
                yield
            except ValueError as error:
                raise RuntimeError("instead") from error

    assert bus_of(make(Fails), make(Swallows)).on["train"].after_iter(None) is None
    with pytest.raises(RuntimeError, match="instead") as caught:
        bus_of(make(Fails), make(Replaces)).on["train"].after_iter(None)
    assert caught.value.__notes__ == [f"raised by Replaces ({HERE}) in after_iter, {WHERE}"]


def test_of_two_instances_of_a_class_the_right_one_is_found_through_a_wrapper():
    class Counted(Hook):
        def after_iter(self, solver):
            self.act()

        def act(self):
            if self.priority == 2:
                raise ValueError("two")

    class Child(Counted):
        def after_iter(self, solver):
            super().after_iter(solver)

    bus = bus_of(make(Counted, 1), make(Child, 2), make(Counted, 3), make(Wraps))
    with pytest.raises(ValueError, match="two") as caught:
        bus.on["train"].after_iter(None)
    assert caught.value.__notes__ == [f"raised by Child ({HERE}) in after_iter, {WHERE}"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_of_nested_events_the_innermost_is_named_once(wrapped):
    class Step:
        @hookspec
        def after_step(self, solver): ...

    class Emits(Hook):
        events = Step

        def after_iter(self, solver):
            solver.after_step(solver)

    class Inner(Hook):
        def after_step(self, solver):
            raise ValueError("inner")

    bus = bus_of(make(Emits), make(Inner), *([make(Wraps)] if wrapped else []))
    with pytest.raises(ValueError, match="inner") as caught:
        bus.on["train"].after_iter(bus.on["train"])
    assert caught.value.__notes__ == [f"raised by Inner ({HERE}) in after_step, {WHERE}"]


@pytest.mark.parametrize("error", [Stopped(signal.SIGTERM), KeyboardInterrupt()])
@pytest.mark.parametrize("extra", [[], [Wraps]])
def test_a_request_to_stop_is_no_hooks_failure(error, extra):
    class Interrupted(Hook):
        def after_iter(self, solver):
            raise error

    with pytest.raises(type(error)) as caught:
        bus_of(make(Interrupted), *(make(kind) for kind in extra)).on["train"].after_iter(None)
    assert getattr(caught.value, "__notes__", []) == []


# --- events in which every hook is called ---------------------------------------------------------------------------


def telling(calls: list[str], label: str, error: Exception | None = None) -> Hook:
    class Told(Hook):
        def after_solve(self, solver):
            calls.append(label)
            if error is not None:
                raise error

        def on_exception(self, error):
            calls.append(f"{label} {error}")

    Told.__name__ = label
    return make(Told)


def test_every_hook_is_called_and_the_first_error_is_raised_with_the_others():
    calls: list[str] = []
    first, second = ValueError("one"), OSError("two")
    bus = bus_of(
        telling(calls, "A", first), telling(calls, "B"), telling(calls, "C", second), telling(calls, "D")
    )
    with pytest.raises(ValueError, match="one") as caught:
        bus.on["train"].after_solve(None)
    assert calls == ["A", "B", "C", "D"]
    assert caught.value is first
    assert caught.value.__notes__ == [
        f"raised by A ({HERE}) in after_solve, {WHERE}",
        f"after it failed: OSError: two\nraised by C ({HERE}) in after_solve, {WHERE}",
    ]


def test_on_exception_reaches_all_with_the_arguments_they_name():
    calls: list[str] = []
    bus_of(telling(calls, "A"), telling(calls, "B")).on["eval"].on_exception(None, ValueError("why"))
    assert calls == ["A why", "B why"]


def test_an_interrupt_ends_even_these_at_once():
    calls: list[str] = []

    class Interrupted(Hook):
        def after_solve(self, solver):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bus_of(telling(calls, "A"), make(Interrupted), telling(calls, "B")).on["train"].after_solve(None)
    assert calls == ["A"]


def wrapping(calls: list[str], label: str, before: Exception | None = None, swallow: bool = False) -> Hook:
    class Around(Hook):
        @hookimpl(wrapper=True)
        def after_solve(self, solver):
            calls.append(f"{label}>")
            if before is not None:
                raise before
            try:
                result = yield
            except Exception as error:
                calls.append(f"<{label} {error}")
                if not swallow:
                    raise
                return
            calls.append(f"<{label} {result}")

    Around.__name__ = label
    return make(Around)


def test_wrappers_of_an_isolated_event_see_its_error_and_may_swallow_it():
    calls: list[str] = []
    hooks = [wrapping(calls, "outer"), wrapping(calls, "inner"), telling(calls, "A", ValueError("one"))]
    with pytest.raises(ValueError, match="one") as caught:
        bus_of(*hooks, telling(calls, "B")).on["train"].after_solve(None)
    assert calls == ["outer>", "inner>", "A", "B", "<inner one", "<outer one"]
    assert caught.value.__notes__ == [f"raised by A ({HERE}) in after_solve, {WHERE}"]

    calls.clear()
    hooks = [
        wrapping(calls, "outer"),
        wrapping(calls, "inner", swallow=True),
        telling(calls, "A", ValueError("one")),
    ]
    bus_of(*hooks).on["train"].after_solve(None)
    assert calls == ["outer>", "inner>", "A", "<inner one", "<outer []"]


def test_a_wrapper_that_fails_first_stops_nobody():
    calls: list[str] = []
    hooks = [
        wrapping(calls, "outer"),
        wrapping(calls, "bad", before=KeyError("bad")),
        wrapping(calls, "inner", swallow=True),
        telling(calls, "A", ValueError("one")),
        telling(calls, "B"),
    ]
    with pytest.raises(KeyError) as caught:
        bus_of(*hooks).on["train"].after_solve(None)
    assert calls == ["outer>", "bad>", "inner>", "A", "B", "<inner one", "<outer 'bad'"]
    assert caught.value.__notes__ == [f"raised by bad ({HERE}) in after_solve, {WHERE}"]


def test_wrappers_of_an_isolated_event_must_yield_once():
    calls: list[str] = []

    class Never(Hook):
        @hookimpl(wrapper=True)
        def after_solve(self, solver):
            if calls is None:
                yield

    class Twice(Hook):
        @hookimpl(wrapper=True)
        def after_solve(self, solver):
            yield
            yield

    with pytest.raises(RuntimeError, match="a wrapper of after_solve did not yield") as caught:
        bus_of(make(Never), telling(calls, "A")).on["train"].after_solve(None)
    assert calls == ["A"]
    assert caught.value.__notes__ == [f"raised by Never ({HERE}) in after_solve, {WHERE}"]
    with pytest.raises(RuntimeError, match="a wrapper of after_solve yielded twice"):
        bus_of(make(Twice), telling(calls, "A")).on["train"].after_solve(None)
