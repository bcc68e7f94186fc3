"""Who is called, how often, and in which order."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from scepter_core.bus import EventBus, Hook, hookimpl
from scepter_core.errors import ConfigError
from scepter_core.sections import HookConfig

EVENTS = [
    "before_solve",
    "after_solve",
    "before_epoch",
    "after_epoch",
    "before_all_iter",
    "after_all_iter",
    "before_iter",
    "after_iter",
]


def make(kind: type[Hook], priority: int | None = None, name: str = "") -> Hook:
    given = {} if priority is None else {"priority": priority}
    return kind(kind.Config(name=name or kind.__name__, **given))


def recorder(calls: list[str], label: str, priority: int = 0, **marks: bool) -> Hook:
    """A hook that notes `label` at every event; `marks` go to hookimpl."""

    def method(event: str):
        def act(self, solver):
            calls.append(f"{event}:{label}")

        return hookimpl(**marks)(act) if marks else act

    kind = type(label, (Hook,), {event: method(event) for event in EVENTS})
    return make(kind, priority, label)


def bus_of(*hooks: Hook, mode: str = "train") -> EventBus:
    bus = EventBus()
    for hook in hooks:
        bus.register(hook, mode)
    bus.freeze()
    return bus


def test_hooks_run_in_ascending_priority_whatever_the_order_of_the_yaml():
    calls: list[str] = []
    listed = [("Sampler", 400), ("Checkpoint", 300), ("Lr", 200), ("Log", 100), ("Backward", 0)]
    listed += [("A", 150), ("B", 150), ("Early", 50)]
    bus = bus_of(*(recorder(calls, name, priority) for name, priority in listed))
    eval_hook = recorder(calls, "Eval", 10)
    bus.register(eval_hook, "eval")
    on = bus.on["train"]

    on.before_solve(None)
    on.before_epoch(None)
    on.before_all_iter(None)
    for _ in range(2):
        on.before_iter(None)
        on.after_iter(None)
    on.after_all_iter(None)
    on.after_epoch(None)
    on.after_solve(None)

    order = ["Backward", "Early", "Log", "A", "B", "Lr", "Checkpoint", "Sampler"]
    run_order = ["Backward", "Eval", "Early", "Log", "A", "B", "Lr", "Checkpoint", "Sampler"]
    expected = [
        ("before_solve", run_order),
        ("before_epoch", order),
        ("before_all_iter", order),
        ("before_iter", order),
        ("after_iter", order),
        ("before_iter", order),
        ("after_iter", order),
        ("after_all_iter", order),
        ("after_epoch", order),
        ("after_solve", run_order),
    ]
    assert calls == [f"{event}:{name}" for event, names in expected for name in names]


def test_mode_events_reach_the_hooks_of_their_mode_only():
    calls: list[str] = []
    bus = EventBus()
    for mode in ("test", "eval", "train"):
        bus.register(recorder(calls, mode), mode)
    bus.freeze()
    bus.on["eval"].before_iter(None)
    bus.on["test"].after_epoch(None)
    assert calls == ["before_iter:eval", "after_epoch:test"]


def test_run_events_break_ties_by_train_eval_test_and_are_in_every_table():
    calls: list[str] = []
    bus = EventBus()
    for mode in ("test", "eval", "train"):
        bus.register(recorder(calls, mode, 100), mode)
    bus.register(recorder(calls, "test0", 0), "test")
    bus.freeze()
    for mode in ("train", "eval", "test"):
        calls.clear()
        bus.on[mode].before_solve(None)
        assert calls == [f"before_solve:{name}" for name in ("test0", "train", "eval", "test")]


def test_a_hook_under_two_modes_gets_a_run_event_once():
    calls: list[str] = []
    hook = recorder(calls, "Both")
    bus = EventBus()
    bus.register(hook, "eval")
    bus.register(hook, "train")
    bus.freeze()
    bus.on["train"].before_solve(None)
    bus.on["train"].before_iter(None)
    bus.on["eval"].before_iter(None)
    assert calls == ["before_solve:Both", "before_iter:Both", "before_iter:Both"]
    assert [info.mode for info in bus.order("before_solve", "eval")] == ["train"]


def test_tryfirst_and_trylast_go_around_the_others_each_in_ascending_priority():
    calls: list[str] = []
    bus = bus_of(
        recorder(calls, "last2", 20, trylast=True),
        recorder(calls, "last1", 10, trylast=True),
        recorder(calls, "plain2", 15),
        recorder(calls, "plain1", 5),
        recorder(calls, "first2", 300, tryfirst=True),
        recorder(calls, "first1", 200, tryfirst=True),
    )
    bus.on["train"].after_iter(None)
    assert calls == [
        f"after_iter:{name}" for name in ("first1", "first2", "plain1", "plain2", "last1", "last2")
    ]
    assert [(info.name, info.kind, info.priority) for info in bus.order("after_iter", "train")] == [
        ("first1", "tryfirst", 200),
        ("first2", "tryfirst", 300),
        ("plain1", "plain", 5),
        ("plain2", "plain", 15),
        ("last1", "trylast", 10),
        ("last2", "trylast", 20),
    ]


def test_one_hook_may_act_early_and_late_in_one_event():
    calls: list[str] = []

    class Ends(Hook):
        @hookimpl(specname="after_iter", tryfirst=True)
        def early(self, solver):
            calls.append("early")

        @hookimpl(trylast=True)
        def after_iter(self, solver):
            calls.append("late")

    bus = bus_of(make(Ends, 50), recorder(calls, "Plain", 10))
    bus.on["train"].after_iter(None)
    assert calls == ["early", "after_iter:Plain", "late"]


def test_wrappers_run_around_the_rest_the_lowest_priority_outermost():
    calls: list[str] = []

    def wrapper(label: str) -> type[Hook]:
        class Wrapper(Hook):
            @hookimpl(wrapper=True)
            def after_iter(self, solver):
                calls.append(f"{label}>")
                result = yield
                calls.append(f"<{label}")
                return result

        return Wrapper

    bus = bus_of(make(wrapper("inner"), 20), recorder(calls, "Plain", 0), make(wrapper("outer"), 10))
    assert bus.on["train"].after_iter(None) is None
    assert calls == ["outer>", "inner>", "after_iter:Plain", "<inner", "<outer"]
    assert [info.kind for info in bus.order("after_iter", "train")] == ["wrapper", "wrapper", "plain"]


def test_the_methods_of_the_base_class_are_no_implementations():
    bus = bus_of(make(Hook))
    assert {event: bus.order(event, "train") for event in bus.events} == {event: [] for event in bus.events}
    assert set(bus.events) == {*EVENTS, "on_metrics", "on_exception"}
    assert bus.on["train"].before_iter is bus.on["eval"].after_epoch


def test_an_inherited_event_counts_and_an_attribute_can_take_it_out():
    calls: list[str] = []

    class Parent(Hook):
        def after_iter(self, solver):
            calls.append(type(self).__name__)

    class Child(Parent):
        pass

    class Silent(Parent):
        after_iter = None

    bus_of(make(Child), make(Silent)).on["train"].after_iter(None)
    assert calls == ["Child"]


def test_arguments_are_taken_by_name_in_any_number_and_order():
    seen: list[object] = []

    class Reversed(Hook):
        def on_metrics(self, metrics, solver):
            seen.append(("reversed", metrics, solver))

    class One(Hook):
        def on_metrics(self, mode):
            seen.append(("one", mode))

    class None_(Hook):
        def on_metrics(self):
            seen.append("none")

        def before_iter(self):
            seen.append("no solver")

    class Static(Hook):
        @staticmethod
        def on_metrics(solver, mode, metrics):
            seen.append(("static", solver, mode, metrics))

    bus = bus_of(make(Reversed), make(One), make(None_), make(Static))
    bus.on["train"].on_metrics("S", "eval", {"acc": 1.0})
    bus.on["train"].before_iter("S")
    assert seen == [
        ("reversed", {"acc": 1.0}, "S"),
        ("one", "eval"),
        "none",
        ("static", "S", "eval", {"acc": 1.0}),
        "no solver",
    ]


def test_hooks_that_compare_equal_are_all_called():
    calls: list[int] = []

    class Same(Hook):
        def __eq__(self, other):
            return True

        __hash__ = None

        def after_iter(self, solver):
            calls.append(id(self))

    hooks = [make(Same), make(Same)]
    bus = bus_of(*hooks)
    bus.on["train"].after_iter(None)
    assert calls == [id(hook) for hook in hooks]
    bus.unregister(hooks[0], "train")
    bus.on["train"].after_iter(None)
    assert calls[2:] == [id(hooks[1])]


def test_registering_after_the_freeze_acts_at_once_and_tables_stay_the_same():
    calls: list[str] = []
    bus = bus_of(recorder(calls, "B", 100))
    on = bus.on["train"]
    late = recorder(calls, "A", 0)
    bus.register(late, "train")
    assert bus.on["train"] is on
    on.after_iter(None)
    bus.unregister(late, "train")
    on.after_iter(None)
    assert calls == ["after_iter:A", "after_iter:B", "after_iter:B"]


def test_a_hook_may_register_another_in_the_middle_of_an_event():
    calls: list[str] = []

    class Grows(Hook):
        def after_iter(self, solver):
            calls.append("grows")
            if len(calls) == 1:
                solver.bus.register(recorder(calls, "New", -1), "train")

    bus = bus_of(make(Grows))
    solver = SimpleNamespace(bus=bus)
    bus.on["train"].after_iter(solver)
    assert calls == ["grows"]
    bus.on["train"].after_iter(solver)
    assert calls == ["grows", "after_iter:New", "grows"]


def test_emitting_freezes():
    calls: list[str] = []
    bus = EventBus()
    bus.register(recorder(calls, "A"), "train")
    on = bus.on["train"]
    assert not bus.frozen
    on.before_iter(None)
    assert bus.frozen
    assert calls == ["before_iter:A"]


def test_a_mode_or_hook_that_is_not_there():
    bus = EventBus()
    hook = recorder([], "A")
    with pytest.raises(ValueError, match="no mode 'valid'; the modes are train, eval, test"):
        bus.register(hook, "valid")
    with pytest.raises(ValueError, match=r"A \(.*\) is not registered in train"):
        bus.unregister(hook, "train")
    bus.register(hook, "train")
    with pytest.raises(ValueError, match=r"A \(.*\) is registered in train already"):
        bus.register(hook, "train")
    with pytest.raises(ValueError, match=r"no event is named befor_iter\. did you mean before_iter\?"):
        bus.order("befor_iter", "train")
    with pytest.raises(AttributeError, match="on_log"):
        bus.on["train"].on_log(None)


def test_priority_is_the_given_one_else_the_default_of_the_config_zero_included():
    class Late(Hook):
        class Config(HookConfig):
            priority: int = 300

    assert make(Late).priority == 300
    assert make(Late, 0).priority == 0
    assert make(Hook).priority == 0
    assert make(Late, name="Other").name == "Other"


def test_a_priority_that_is_no_number_is_refused():
    class Vague(Hook):
        def __init__(self, cfg, logger=None):
            super().__init__(cfg, logger=logger)
            self.priority = cfg.get("PRIORITIES")

    bus = EventBus()
    bus.register(make(Vague), "train")
    with pytest.raises(ConfigError, match=r"Vague \(test_bus_order\.py\): its priority is no number\n    found:    None"):
        bus.freeze()
