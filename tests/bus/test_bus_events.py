"""Events that hooks bring, and what is refused when the bus is frozen."""

from __future__ import annotations

import warnings

import pytest

from scepter_core.bus import CoreEvents, EventBus, Hook, hookimpl, hookspec
from scepter_core.errors import ConfigError
from scepter_core.sections import HookConfig


class LogEvents:
    @hookspec(scope="run")
    def on_log(self, solver, record):
        """A record is complete."""

    @hookspec
    def after_step(self, solver):
        """An update reached the weights."""

    @hookspec(firstresult=True)
    def on_choice(self, solver, value):
        """The first answer wins."""


class Brings(Hook):
    events = LogEvents


def make(kind: type[Hook]) -> Hook:
    return kind(kind.Config(name=kind.__name__))


def bus_of(*hooks: Hook, mode: str = "train") -> EventBus:
    bus = EventBus()
    for hook in hooks:
        bus.register(hook, mode)
    bus.freeze()
    return bus


def refusal(*kinds: type[Hook]) -> str:
    with pytest.raises(ConfigError) as caught:
        bus_of(*(make(kind) for kind in kinds))
    return str(caught.value)


def test_a_hook_brings_events_that_others_implement_in_any_mode():
    seen: list[object] = []

    class Sink(Hook):
        def on_log(self, record):
            seen.append(record)

        def after_step(self, solver):
            seen.append("step")

    bus = bus_of(make(Brings))
    bus.register(make(Sink), "eval")
    bus.on["train"].on_log("solver", {"loss": 1.0})
    bus.on["train"].after_step("solver")
    assert seen == [{"loss": 1.0}]
    bus.on["eval"].after_step("solver")
    assert seen == [{"loss": 1.0}, "step"]
    assert bus.has("on_log")
    assert not bus.has("on_checkpoint")


def test_an_event_nobody_implements_does_nothing():
    on = bus_of(make(Brings)).on["train"]
    assert on.on_log("solver", {}) is None
    assert on.on_choice("solver", 1) is None


def test_first_result_ends_the_event():
    asked: list[str] = []

    def answering(label: str, answer: object) -> Hook:
        class Answers(Hook):
            def on_choice(self, value):
                asked.append(label)
                return answer

        return make(Answers)

    bus = bus_of(make(Brings), answering("a", None), answering("b", 0), answering("c", 1))
    assert bus.on["train"].on_choice("solver", 5) == 0
    assert asked == ["a", "b"]


def test_first_result_through_a_wrapper():
    class Answers(Hook):
        def on_choice(self, value):
            return value + 1

    class Doubles(Hook):
        @hookimpl(wrapper=True)
        def on_choice(self):
            return 2 * (yield)

    assert bus_of(make(Brings), make(Answers), make(Doubles)).on["train"].on_choice("solver", 4) == 10


def test_the_event_of_an_absent_plugin_is_refused_unless_optional():
    class Needs(Hook):
        def on_log(self, record): ...

    class CanDoWithout(Hook):
        @hookimpl(optionalhook=True)
        def on_log(self, record): ...

    text = refusal(Needs)
    assert "Needs (test_bus_events.py) in TRAIN_HOOKS: on_log: no event is named on_log" in text
    assert "@hookimpl(optionalhook=True)" in text
    assert not bus_of(make(CanDoWithout)).has("on_log")
    bus = bus_of(make(CanDoWithout), make(Brings))
    assert [info.name for info in bus.order("on_log", "train")] == ["CanDoWithout"]


def test_a_hook_whose_event_another_needs_cannot_be_taken_out():
    class Needs(Hook):
        def on_log(self, record): ...

    brings = make(Brings)
    bus = bus_of(make(Needs), brings)
    with pytest.raises(ConfigError, match="no event is named on_log"):
        bus.unregister(brings, "train")
    assert bus.has("on_log")


def test_misspelt_events_are_refused_all_at_once_with_the_nearest_name():
    class Typo(Hook):
        def after_itr(self, solver): ...

        def befor_iter(self, solver): ...  # by the rule a helper: it is not named like an event

        def before_epochs(self, solver): ...

        def helper(self): ...

        def _on_anything(self): ...

    class Other(Hook):
        def on_exeption(self, solver): ...

    with pytest.raises(ConfigError) as caught:
        bus_of(make(Typo), make(Other))
    assert [(problem.message.split(": ", 1)[1], problem.hint) for problem in caught.value.problems] == [
        ("after_itr: no event is named after_itr", "did you mean after_iter?"),
        ("before_epochs: no event is named before_epochs", "did you mean before_epoch?"),
        ("on_exeption: no event is named on_exeption", "did you mean on_exception?"),
    ]


def test_a_marked_method_must_name_an_event_whatever_it_is_called():
    class Marked(Hook):
        @hookimpl(tryfirst=True)
        def iter_done(self, solver): ...

    assert "iter_done: no event is named iter_done" in refusal(Marked)


@pytest.mark.parametrize("signature", ["solver=None", "*solver", "**solver", "*, solver"])
def test_arguments_with_defaults_or_stars_are_refused(signature: str):
    scope: dict[str, type[Hook]] = {"Hook": Hook}
    exec(f"class Odd(Hook):\n    def after_iter(self, {signature}): ...", scope)
    assert "after_iter: arguments with defaults or stars: (" in refusal(scope["Odd"])


def test_an_argument_that_the_event_lacks_is_refused():
    class Odd(Hook):
        def after_iter(self, solver, batch): ...

    text = refusal(Odd)
    assert text.startswith("Odd (test_bus_events.py) in TRAIN_HOOKS: after_iter: the event gives no batch\n")
    assert text.endswith("it gives solver")


def test_a_yield_without_the_mark_and_the_mark_without_a_yield_are_refused():
    class Unmarked(Hook):
        def after_iter(self, solver):
            yield

    class Yieldless(Hook):
        @hookimpl(wrapper=True)
        def after_iter(self, solver): ...

    class Async(Hook):
        async def after_iter(self, solver): ...

    assert "mark it @hookimpl(wrapper=True)" in refusal(Unmarked)
    assert "function is not a generator function" in refusal(Yieldless)
    assert "an event cannot be async" in refusal(Async)


def test_the_old_kind_of_wrapper_is_refused_where_every_hook_is_called():
    class Old(Hook):
        @hookimpl(hookwrapper=True)
        def after_solve(self, solver):
            yield

    assert "after_solve: hookwrapper=True" in refusal(Old)
    assert "mark it @hookimpl(wrapper=True)" in refusal(Old)


def test_a_refused_registration_leaves_a_frozen_bus_as_it_was():
    class Typo(Hook):
        def after_itr(self, solver): ...

    calls: list[str] = []

    class Good(Hook):
        def after_iter(self, solver):
            calls.append("good")

    bus = bus_of(make(Good))
    with pytest.raises(ConfigError):
        bus.register(make(Typo), "train")
    bus.on["train"].after_iter(None)
    bus.register(make(Brings), "train")
    assert calls == ["good"]


def test_two_hooks_of_one_role_in_a_mode_are_refused():
    class Backward(Hook):
        role = "backward"

    class OtherBackward(Hook):
        role = "backward"

    text = refusal(Backward, OtherBackward)
    assert text.startswith(
        "TRAIN_HOOKS: Backward (test_bus_events.py) and OtherBackward (test_bus_events.py) both have the role "
        "'backward', which only one hook can have"
    )
    bus = bus_of(make(Backward))
    bus.register(make(OtherBackward), "eval")
    bus.register(make(Hook), "train")
    bus.register(make(Hook), "train")


def test_one_event_of_two_hooks_must_be_declared_the_same():
    class Same:
        @hookspec(scope="run")
        def on_log(self, solver, record): ...

    class OtherArguments:
        @hookspec(scope="run")
        def on_log(self, solver, row): ...

    class OtherScope:
        @hookspec
        def on_log(self, solver, record): ...

    def bringing(declaring: type) -> type[Hook]:
        return type("Also", (Hook,), {"events": declaring})

    seen: list[object] = []

    class Sink(Hook):
        def on_log(self, record):
            seen.append(record)

    bus_of(make(Brings), make(Brings), make(bringing(Same)), make(Sink)).on["train"].on_log(None, 1)
    assert seen == [1]
    text = refusal(Brings, bringing(OtherArguments))
    assert "the event on_log is declared in two ways" in text
    assert "(solver, record), scope run" in text
    assert "(solver, row), scope run" in text
    assert "(solver, record), scope mode" in refusal(Brings, bringing(OtherScope))


def test_declarations_that_cannot_work_are_refused():
    class Empty: ...

    class NoSelf:
        @hookspec
        def on_x(solver): ...

    class Default:
        @hookspec
        def on_x(self, solver, value=1): ...

    def bringing(declaring: type) -> type[Hook]:
        return type("Odd", (Hook,), {"events": declaring})

    assert "has no method marked @hookspec" in refusal(bringing(Empty))
    assert "its first argument is self" in refusal(bringing(NoSelf))
    assert "arguments without defaults or stars" in refusal(bringing(Default))
    with pytest.raises(ValueError, match="'mode' or 'run', not 'epoch'"):
        hookspec(scope="epoch")
    with pytest.raises(ValueError, match="not both"):
        hookspec(isolated=True, firstresult=True)


def test_a_deprecated_event_warns_who_implements_it():
    class Old:
        @hookspec(warn_on_impl=DeprecationWarning("on_old goes away; implement on_log"))
        def on_old(self, solver): ...

    class BringsOld(Hook):
        events = Old

    class Implements(Hook):
        def on_old(self, solver): ...

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bus_of(make(BringsOld))
    with pytest.warns(DeprecationWarning, match="implement on_log"):
        bus_of(make(BringsOld), make(Implements))


def test_every_event_of_the_core_says_when_it_is_emitted():
    events = EventBus()
    events.freeze()
    assert [event for event in events.events if not (getattr(CoreEvents, event).__doc__ or "").strip()] == []


def test_config_of_the_base_is_strict():
    with pytest.raises(ValueError, match="INTERVAL"):
        HookConfig(name="X", INTERVAL=1)
