"""What an update is: accumulation, clipping, scaling, precision."""

from __future__ import annotations

import pytest
import torch

from scepter_core import SOLVERS, ConfigError, load_config


def weight(solver):
    return float(solver.model.w.detach())


def recorder(solver):
    return next(hook for hook in solver.hooks_dict["train"] if hook.name == "BackwardTestRecorder")


def test_a01_last_partial_window_of_an_epoch_is_stepped_with_its_own_mean(job):
    solver = job([1.0] * 5, ACCUMULATE_STEP=2).run()
    assert weight(solver) == -3.0
    assert solver.total_updates == 3
    assert solver.train_steps == 5


def test_a01_windows_begin_anew_in_every_epoch(job):
    # 1 2 | 3 and again: nothing crosses the end of an epoch
    solver = job([1.0, 2.0, 3.0], ACCUMULATE_STEP=2, solver={"MAX_EPOCHS": 2}).run()
    assert weight(solver) == -2 * (1.5 + 3.0)
    assert solver.total_updates == 4


@pytest.mark.parametrize("values", [[1.0] * 5, [1.0, 3.0, 2.0, 2.0, 5.0]])
def test_a01_loader_without_length_steps_its_last_window_with_its_own_mean(job, values):
    # The end comes unannounced: the last micro-batch was scaled for a whole window.
    solver = job(values, data="BackwardTestStream", ACCUMULATE_STEP=2).run()
    means = [(values[0] + values[1]) / 2, (values[2] + values[3]) / 2, values[4]]
    assert weight(solver) == pytest.approx(-sum(means), abs=1e-6)
    assert solver.total_updates == 3
    assert solver.epoch_max_iter == -1


def test_a01_loader_without_length_with_three_in_a_window(job):
    solver = job([1.0, 1.0, 1.0, 4.0, 2.0], data="BackwardTestStream", ACCUMULATE_STEP=3).run()
    assert weight(solver) == pytest.approx(-1.0 - 3.0, abs=1e-6)
    assert solver.total_updates == 2


def test_a04_micro_batches_of_different_size_count_the_same(job):
    # batches of 4, 4 and 1 with means 0, 0 and 9
    solver = job([0.0] * 8 + [9.0], batch_size=4, ACCUMULATE_STEP=3).run()
    assert weight(solver) == pytest.approx(-3.0, abs=1e-6)
    assert solver.total_updates == 1


@pytest.mark.parametrize("data", ["BackwardTestData", "BackwardTestStream"])
@pytest.mark.parametrize(
    ("steps", "expected", "updates"), [(3, -(1.5 + 3.0), 2), (4, -(1.5 + 3.5), 2), (1, -1.0, 1)]
)
def test_window_that_max_steps_cuts_is_stepped_with_its_own_mean(job, data, steps, expected, updates):
    limits = {"MAX_EPOCHS": ..., "MAX_STEPS": steps}
    solver = job([1.0, 2.0, 3.0, 4.0, 5.0], data=data, ACCUMULATE_STEP=2, solver=limits).run()
    assert weight(solver) == pytest.approx(expected, abs=1e-6)
    assert solver.total_updates == updates
    assert solver.train_steps == steps


def test_a15_solver_key_alone(job):
    solver = job([1.0] * 4, solver={"ACCU_STEP": 2}).run()
    assert (weight(solver), solver.total_updates) == (-2.0, 2)


def test_a15_hook_key_alone(job):
    solver = job([1.0] * 4, ACCUMULATE_STEP=2).run()
    assert (weight(solver), solver.total_updates) == (-2.0, 2)
    assert solver.updates_per_epoch == 2


def test_a15_both_keys_that_agree(job):
    solver = job([1.0] * 4, ACCUMULATE_STEP=2, solver={"ACCU_STEP": 2}).run()
    assert (weight(solver), solver.total_updates) == (-2.0, 2)


@pytest.mark.parametrize(("common", "own"), [(2, 4), (4, 2), (1, 2), (2, 1)])
def test_a15_both_keys_that_differ(job, tmp_path, common, own):
    with pytest.raises(ConfigError) as caught:
        job([1.0] * 4, ACCUMULATE_STEP=own, solver={"ACCU_STEP": common}).run()
    (problem,) = caught.value.problems
    assert problem.path == "SOLVER.TRAIN_HOOKS[0].ACCUMULATE_STEP"
    assert "ACCU_STEP" in problem.message.replace("ACCUMULATE_STEP", "")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", [0, -1])
def test_a14_accumulate_step_below_one(job, tmp_path, value):
    with pytest.raises(ConfigError) as caught:
        job([1.0], ACCUMULATE_STEP=value).run()
    assert "TRAIN_HOOKS[0].ACCUMULATE_STEP" in str(caught.value)
    assert "must be >= 1" in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", [True, 1.5, "2"])
def test_a14_accumulate_step_of_another_type(job, tmp_path, value):
    with pytest.raises(ConfigError) as caught:
        job([1.0], ACCUMULATE_STEP=value).run()
    (problem,) = caught.value.problems
    assert problem.path == "SOLVER.TRAIN_HOOKS[0].ACCUMULATE_STEP"
    assert not (tmp_path / "run").exists()


# --- clipping ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [-1, 0, -0.5])
def test_a08_gradient_clip_of_zero_or_less_is_off(job, limit):
    assert weight(job([10.0], GRADIENT_CLIP=limit).run()) == -10.0


def test_clip_below_the_limit_changes_nothing(job):
    assert weight(job([10.0], GRADIENT_CLIP=11.0).run()) == -10.0


def test_clip_is_over_all_parameters_together(job):
    # gradient (3, 4) has norm 5: clipped to 1 it is (0.6, 0.8), and not (1, 1)
    solver = job([3.0], y=[4.0], GRADIENT_CLIP=1.0).run()
    assert weight(solver) == pytest.approx(-0.6, abs=1e-5)
    assert float(solver.model.v.detach()) == pytest.approx(-0.8, abs=1e-5)


def test_clip_is_over_all_parameter_groups_together(job):
    groups = {"PARAM_GROUPS": [{"PATTERN": "v", "LEARNING_RATE": 10.0}]}
    solver = job([3.0], y=[4.0], GRADIENT_CLIP=1.0, optimizer=groups).run()
    assert weight(solver) == pytest.approx(-0.6, abs=1e-5)
    assert float(solver.model.v.detach()) == pytest.approx(-8.0, abs=1e-4)


def test_clip_acts_on_the_mean_of_a_window_and_not_on_its_parts(job):
    # mean of 4 and -2 is 1, within the limit; clipped one by one they would give 0
    assert weight(job([4.0, -2.0], ACCUMULATE_STEP=2, GRADIENT_CLIP=1.5).run()) == pytest.approx(
        -1.0, abs=1e-6
    )


def test_clip_acts_on_the_mean_of_a_short_window_of_a_loader_without_length(job):
    # the single 2 of the short window is within the limit
    solver = job([1.0, 1.0, 1.0, 2.0], data="BackwardTestStream", ACCUMULATE_STEP=3, GRADIENT_CLIP=2.5).run()
    assert weight(solver) == pytest.approx(-3.0, abs=1e-5)


# --- scaling and precision -----------------------------------------------------------------------------------------


def test_a05_gradient_is_unscaled_before_it_is_clipped(job):
    solver = job([10.0], GRADIENT_CLIP=1.0, solver={"TRAIN_PRECISION": 16}).run()
    assert solver.scaler.is_enabled()
    assert solver.scaler.get_scale() == 65536.0
    assert weight(solver) == pytest.approx(-1.0, abs=1e-5)


def test_a05_scaled_run_ends_where_the_plain_one_does(job):
    solver = job([1.0, 2.0, 3.0], ACCUMULATE_STEP=2, solver={"TRAIN_PRECISION": 16}).run()
    assert weight(solver) == -4.5


def resume(job_, state):
    """A new solver of the same configuration that goes on from `state` to epoch 2."""
    section = load_config(job_.config, ["SOLVER.MAX_EPOCHS=2"]).SOLVER
    solver = SOLVERS.build(section, logger=job_.logger)
    solver.set_up_pre()
    solver.set_up()
    solver.load_checkpoint(state)
    return solver


def test_a12_scale_survives_a_resume(job):
    # the second scaled gradient overflows: that update is left out, and the scale is halved
    toy = job([1.0, 1e35], solver={"TRAIN_PRECISION": 16})
    first = toy.run()
    assert (weight(first), first.total_updates) == (-1.0, 1)
    assert first.scaler.get_scale() == 32768.0

    second = resume(toy, first.save_checkpoint())
    assert second.scaler.get_scale() == 32768.0
    second.solve()
    assert second.scaler.get_scale() == 16384.0
    assert (weight(second), second.total_updates, second.epoch) == (-2.0, 2, 2)


def test_update_that_the_scaler_leaves_out_is_no_update(job):
    solver = job([1.0, 1e35, 1.0], recorder=True, solver={"TRAIN_PRECISION": 16}).run()
    steps = [note for note in recorder(solver).notes if note[0] == "after_step"]
    assert [(note[1], note[2]) for note in steps] == [(1, 1), (3, 2)]
    assert weight(solver) == -2.0


def test_bf16_autocast_reaches_the_forward(job):
    plain = job([1.0, 2.0], model="BackwardTestMatmul", optimizer={"LEARNING_RATE": 0.1})
    assert plain.run().model.types == [torch.float32] * 2

    solver = plain.run("SOLVER.TRAIN_PRECISION=bf16")
    assert solver.model.types == [torch.bfloat16] * 2
    assert solver.scaler is None
    assert solver.total_updates == 2
    assert solver.model.layer.weight.dtype == torch.float32
    assert bool(torch.isfinite(solver.model.layer.weight).all())


def test_fp16_autocast_reaches_the_forward(job):
    solver = job(
        [1.0], model="BackwardTestMatmul", optimizer={"LEARNING_RATE": 0.1}, solver={"TRAIN_PRECISION": 16}
    )
    assert solver.run().model.types == [torch.float16]


# --- events --------------------------------------------------------------------------------------------------------


def test_events_of_a_window_in_order_with_counters_and_gradients(job):
    solver = job([1.0, 3.0, 5.0], ACCUMULATE_STEP=2, GRADIENT_CLIP=4.0, recorder=True).run()
    assert recorder(solver).notes == [
        # event, training steps, updates, gradient, weight
        ("after_iter", 1, 0, 0.5, 0.0),
        ("after_backward", 2, 0, 2.0, 0.0),
        ("after_step", 2, 1, 2.0, -2.0),
        ("after_iter", 2, 1, None, -2.0),
        ("after_backward", 3, 1, 5.0, -2.0),
        ("after_step", 3, 2, pytest.approx(4.0, abs=1e-5), pytest.approx(-6.0, abs=1e-5)),
        ("after_iter", 3, 2, None, pytest.approx(-6.0, abs=1e-5)),
    ]


def test_after_backward_sees_the_unscaled_gradient_and_may_change_it(job):
    from scepter_core import HOOKS, Hook

    @HOOKS.register_class()
    class BackwardTestDoubler(Hook):
        def after_backward(self, solver):
            solver.model.w.grad.mul_(2)

    solver = job(
        [3.0],
        recorder=True,
        hooks=[{"NAME": "BackwardTestDoubler", "PRIORITY": 60}],
        solver={"TRAIN_PRECISION": 16},
    ).run()
    assert recorder(solver).notes[0] == ("after_backward", 1, 0, 3.0, 0.0)
    assert weight(solver) == -6.0


def test_after_backward_of_a_short_unannounced_window_sees_its_mean(job):
    solver = job([1.0, 1.0, 4.0], data="BackwardTestStream", ACCUMULATE_STEP=2, recorder=True).run()
    gradients = [note[3] for note in recorder(solver).notes if note[0] == "after_backward"]
    assert gradients == [1.0, 4.0]


def test_eval_computes_no_gradient_and_makes_no_update(job):
    data = {"NAME": "BackwardTestData", "X": [7.0, 7.0]}
    solver = job([1.0, 1.0], solver={"EVAL_DATA": data, "EVAL_HOOKS": [{"NAME": "BackwardHook"}]}).run()
    assert (weight(solver), solver.total_updates) == (-2.0, 2)
    assert solver.epoch_outputs["eval"] == {"loss": -14.0}


# --- the other keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, 1, 2])
def test_e07_empty_cache_step_changes_nothing_on_the_cpu(job, value):
    assert weight(job([1.0, 2.0, 3.0], EMPTY_CACHE_STEP=value).run()) == -6.0


def test_optimizer_is_missing(job, tmp_path):
    with pytest.raises(ConfigError, match=r"SOLVER\.OPTIMIZER"):
        job([1.0], solver={"OPTIMIZER": ...}).run()
    assert not (tmp_path / "run").exists()


def test_two_backward_hooks(job):
    with pytest.raises(ConfigError) as caught:
        job([1.0], hooks=[{"NAME": "BackwardHook"}]).run()
    assert "SOLVER.TRAIN_HOOKS[1]" in str(caught.value)
    assert "backward" in str(caught.value)


def test_misspelt_key_is_named_with_the_right_one(job):
    with pytest.raises(ConfigError) as caught:
        job([1.0], GRADIENT_CLIPP=1.0).run()
    assert "SOLVER.TRAIN_HOOKS[0].GRADIENT_CLIPP" in str(caught.value)
    assert "did you mean GRADIENT_CLIP?" in str(caught.value)
