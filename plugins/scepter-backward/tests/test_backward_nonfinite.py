"""A loss or gradient that is not finite, and a loss that is none."""

from __future__ import annotations

import math

import pytest
import torch

from scepter_backward import BackwardHook
from scepter_core import SOLVERS, ConfigError, RunError, load_config

NAN = math.nan


def weight(solver):
    return float(solver.model.w.detach())


def built(job_):
    """A solver ready to solve, to look at after its run failed."""
    solver = SOLVERS.build(load_config(job_.config).SOLVER, logger=job_.logger)
    solver.set_up_pre()
    solver.set_up()
    return solver


# --- on the host ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [-1.0, 1.0])
@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_a10_error_names_epoch_iteration_update_and_loss_and_spares_the_weights(job, clip, bad):
    solver = built(job([1.0, bad, 1.0], GRADIENT_CLIP=clip))
    with pytest.raises(RunError) as caught:
        solver.solve()
    assert "at epoch 1, iteration 2, update 2" in str(caught.value)
    assert f"loss is {-bad}" in str(caught.value)
    assert caught.value.exit_status == 1
    assert weight(solver) == pytest.approx(-1.0, abs=1e-5)
    assert (solver.total_updates, solver.train_steps) == (1, 2)


@pytest.mark.parametrize("clip", [-1.0, 1.0])
def test_a10_skip_leaves_the_update_out_with_a_warning(job, clip):
    toy = job([1.0, NAN, 1.0], GRADIENT_CLIP=clip, ON_NONFINITE="skip", recorder=True)
    solver = toy.run()
    assert weight(solver) == pytest.approx(-2.0, abs=1e-5)
    assert (solver.total_updates, solver.train_steps) == (2, 3)
    (warning,) = toy.log.of("WARNING")
    assert "epoch 1, iteration 2, update 2" in warning
    notes = next(hook for hook in solver.hooks_dict["train"] if hook.name == "BackwardTestRecorder").notes
    assert [(note[0], note[1]) for note in notes if note[0] != "after_iter"] == [
        ("after_backward", 1), ("after_step", 1), ("after_backward", 3), ("after_step", 3),
    ]  # fmt: skip
    assert all(note[3] is None for note in notes if note[0] == "after_iter"), "gradients are cleared"


@pytest.mark.parametrize("clip", [-1.0, 1.0])
def test_a10_ignore_does_nothing(job, clip):
    toy = job([1.0, NAN, 1.0], GRADIENT_CLIP=clip, ON_NONFINITE="ignore")
    solver = toy.run()
    assert math.isnan(weight(solver))
    assert solver.total_updates == 3
    assert toy.log.of("WARNING") == []


@pytest.mark.parametrize("place", [0, 1])
def test_a10_skip_leaves_out_the_whole_window_and_no_more(job, place):
    window = [5.0, 5.0]
    window[place] = NAN
    solver = job([*window, 1.0, 3.0], ACCUMULATE_STEP=2, ON_NONFINITE="skip").run()
    assert (weight(solver), solver.total_updates) == (-2.0, 1)


def test_a10_skip_at_the_end_of_an_epoch_does_not_reach_into_the_next(job):
    solver = job([1.0, 1.0, NAN], ACCUMULATE_STEP=2, ON_NONFINITE="skip", solver={"MAX_EPOCHS": 2}).run()
    assert (weight(solver), solver.total_updates) == (-2.0, 2)


def test_a10_gradient_alone_is_not_finite(job):
    solver = built(job([1.0, 1.0, 1.0], poison=[0, 1, 0]))
    with pytest.raises(RunError) as caught:
        solver.solve()
    assert "gradient" in str(caught.value)
    assert "epoch 1, iteration 2, update 2" in str(caught.value)
    assert "loss -1.0" in str(caught.value)
    assert (weight(solver), solver.total_updates) == (-1.0, 1)


def test_a10_gradient_alone_is_not_finite_skip(job):
    toy = job([1.0, 1.0, 1.0], poison=[0, 1, 0], ON_NONFINITE="skip")
    solver = toy.run()
    assert (weight(solver), solver.total_updates) == (-2.0, 2)
    assert len(toy.log.of("WARNING")) == 1


def test_large_finite_gradient_is_no_error(job):
    # the sum of squares overflows where the gradient itself does not
    solver = job([3e19], y=[3e19], optimizer={"LEARNING_RATE": 1e-19}).run()
    assert weight(solver) == pytest.approx(-3.0)
    assert solver.total_updates == 1


def test_mark_of_a_bad_open_window_travels_in_the_state(job):
    toy = job([NAN, 1.0, 3.0], ACCUMULATE_STEP=2, ON_NONFINITE="skip")
    solver = toy.run()
    hook = solver.hooks_dict["train"][0]
    hook.load_state_dict({"bad_window": True})
    assert hook.state_dict() == {"bad_window": True}


def test_on_nonfinite_takes_its_three_words_only(job):
    with pytest.raises(ConfigError) as caught:
        job([1.0], ON_NONFINITE="warn").run()
    assert "SOLVER.TRAIN_HOOKS[0].ON_NONFINITE" in str(caught.value)
    for word in ("error", "skip", "ignore"):
        assert word in str(caught.value)


# --- on the device: forced on the CPU, whose fused optimizers take `found_inf` too ---------------------------------


@pytest.fixture
def on_device(monkeypatch):
    monkeypatch.setattr(BackwardHook, "_can_leave_out_on_device", lambda self, solver: True)


FUSED = {"FUSED": True, "MOMENTUM": 0.5}


def momentum(solver):
    return float(solver.optimizer.state[solver.model.w]["momentum_buffer"])


def test_device_leaves_the_update_out_and_error_comes_at_the_end_of_the_epoch(job, on_device):
    solver = built(job([1.0, 7.0], poison=[0, 1], optimizer=FUSED))
    with pytest.raises(RunError) as caught:
        solver.solve()
    assert "1 update(s)" in str(caught.value)
    assert "epoch 1" in str(caught.value)
    assert (weight(solver), momentum(solver)) == (-1.0, 1.0)
    assert solver.total_updates == 1
    assert solver.train_steps == 2, "reported at the epoch's end, not in the step"


def test_device_skip_leaves_weights_and_momentum_untouched(job, on_device):
    toy = job([1.0, 7.0, 1.0], poison=[0, 1, 0], optimizer=FUSED, ON_NONFINITE="skip")
    solver = toy.run()
    # momentum 1, then 0.5 + 1; as if the second batch had not been
    assert (weight(solver), momentum(solver)) == (-2.5, 1.5)
    assert solver.total_updates == 2
    (warning,) = toy.log.of("WARNING")
    assert "1 update(s)" in warning


def test_device_skip_with_clipping(job, on_device):
    solver = job(
        [10.0, 7.0, 10.0], poison=[0, 1, 0], optimizer=FUSED, ON_NONFINITE="skip", GRADIENT_CLIP=1.0
    ).run()
    assert weight(solver) == pytest.approx(-2.5, abs=1e-5)
    assert solver.total_updates == 2


def test_device_skip_of_the_very_first_update_leaves_no_garbage_in_the_momentum(job, on_device):
    # DETERMINISTIC makes torch fill memory that nobody has written with NaN: what reads it shows
    toy = job([7.0, 1.0, 1.0], poison=[1, 0, 0], optimizer=FUSED, ON_NONFINITE="skip")
    try:
        solver = toy.run("ENV.DETERMINISTIC=true")
    finally:
        torch.use_deterministic_algorithms(False)
    assert (weight(solver), momentum(solver)) == (-2.5, 1.5)
    assert solver.total_updates == 2


def test_device_skip_with_fused_adam_equals_a_run_without_that_batch(job, on_device):
    adam = {"NAME": "AdamW", "FUSED": True, "LEARNING_RATE": 0.1}
    skipped = job([1.0, 7.0, 2.0], poison=[0, 1, 0], optimizer=adam, ON_NONFINITE="skip").run()
    plain = job([1.0, 2.0], poison=[0, 0], optimizer=adam).run()
    assert weight(skipped) == weight(plain)
    assert skipped.total_updates == plain.total_updates == 2


def test_device_reports_at_the_log_line(job, on_device):
    from scepter_core import HOOKS, Hook, hookspec

    class LogEvents:
        @hookspec(scope="run")
        def on_log(self, solver, record):
            """A line was logged."""

    @HOOKS.register_class()
    class BackwardTestLogger(Hook):
        events = LogEvents

        def after_iter(self, solver):
            solver.events.on_log(solver, {})

    hooks = [{"NAME": "BackwardTestLogger", "PRIORITY": 100}]
    solver = built(job([1.0, 7.0, 1.0], poison=[0, 1, 0], optimizer=FUSED, hooks=hooks))
    with pytest.raises(RunError, match=r"1 update\(s\)"):
        solver.solve()
    assert (solver.train_steps, weight(solver), solver.total_updates) == (2, -1.0, 1)


def test_device_save_refuses_while_a_bad_update_is_not_reported(job, on_device):
    from scepter_core import HOOKS, Hook, hookimpl

    refusals = []

    @HOOKS.register_class()
    class BackwardTestSaver(Hook):
        @hookimpl(trylast=True)
        def after_iter(self, solver):
            try:
                solver.save_checkpoint()
            except RunError as error:
                refusals.append((solver.train_steps, str(error)))

    toy = job([1.0, 7.0], poison=[0, 1], optimizer=FUSED, hooks=[{"NAME": "BackwardTestSaver"}])
    with pytest.raises(RunError):
        toy.run()
    ((step, text),) = refusals
    assert step == 2
    assert "not finite" in text


def test_device_save_after_a_skipped_update_counts_right(job, on_device):
    from scepter_core import HOOKS, Hook, hookimpl

    saved = []

    @HOOKS.register_class()
    class BackwardTestCounter(Hook):
        @hookimpl(trylast=True)
        def after_iter(self, solver):
            saved.append(solver.save_checkpoint()["total_updates"])

    hooks = [{"NAME": "BackwardTestCounter"}]
    job([1.0, 7.0, 1.0], poison=[0, 1, 0], optimizer=FUSED, ON_NONFINITE="skip", hooks=hooks).run()
    assert saved == [1, 1, 2], "a checkpoint counts the updates that reached the weights, and no others"


def test_device_found_inf_does_not_stay_on_the_optimizer(job, on_device):
    solver = job([1.0], optimizer=FUSED).run()
    assert not hasattr(solver.optimizer, "found_inf")
    assert weight(solver) == -1.0


# --- a loss that is none -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("no loss", ["no `loss`", "logits", "score"]),
        ("nothing", ["no `loss`", "nothing"]),
        ("number", ["`loss`", "tensor", "float"]),
        ("vector", ["`loss`", "one element", "(2,)"]),
        ("detached", ["`loss`", "gradient"]),
    ],
)
def test_loss_that_cannot_be_trained_on(job, kind, words):
    with pytest.raises(RunError) as caught:
        job([1.0], kind=kind).run()
    for word in words:
        assert word in str(caught.value)
    notes = "\n".join(caught.value.__notes__)
    assert "BackwardHook (scepter-backward" in notes
    assert "after_iter" in notes
    assert "train epoch 1, iteration 1" in notes


def test_loss_with_one_element_in_a_shape_is_fine(job):
    assert weight(job([2.0], kind="one element").run()) == -2.0
