"""A resumed run is the uninterrupted one."""

from __future__ import annotations

import pytest
import torch

from scepter_core import ConfigError, RunError


def resumed_from(path, *more):
    return (f"SOLVER.RESUME_FROM={path}", *more)


def test_c01_resume_neither_repeats_nor_skips_an_epoch(probe, recorder):
    job = probe(epochs=2)
    job.run()
    assert job.names == {"p-3", "p-6"}

    solver = job.run(*resumed_from(job.path("p-6"), "SOLVER.MAX_EPOCHS=4"))
    assert [(epoch, step) for epoch, step, _ in recorder(solver).steps] == [
        (3, 7), (3, 8), (3, 9), (4, 10), (4, 11), (4, 12),
    ]  # fmt: skip
    assert solver.total_updates == 12
    assert job.weight("p-12") == -12.0
    assert "resumed from" in job.log.text
    assert str(job.path("p-6")) in job.log.text


def test_c03_resume_in_a_new_process_is_bit_identical(dropnet, losses, differences):
    straight = dropnet(folder="straight")
    straight.run()
    half = dropnet(folder="half", epochs=2)
    half.run()
    rest = dropnet(folder="rest")
    done = rest.interpreter(*resumed_from(half.path("p-last")))
    assert done.returncode == 0, done.stderr
    assert differences(rest.read("p-last"), straight.read("p-last")) == []
    assert losses("half") + losses("rest") == losses("straight")
    assert len(losses("straight")) == 16


def test_c03_resume_with_workers_is_bit_identical(dropnet, losses, differences):
    straight = dropnet(folder="straight")
    straight.run()
    half = dropnet(folder="half", epochs=2)
    half.run("SOLVER.TRAIN_DATA.NUM_WORKERS=1", "SOLVER.EVAL_DATA.NUM_WORKERS=1")
    rest = dropnet(folder="rest")
    rest.run(*resumed_from(half.path("p-last"), "SOLVER.TRAIN_DATA.NUM_WORKERS=2"))
    assert differences(rest.read("p-last"), straight.read("p-last")) == []
    assert losses("half") + losses("rest") == losses("straight")


@pytest.fixture
def accumulating(dropnet):
    """A small run with everything that a resume can get wrong: 2 epochs of 5 steps, windows of 3 and 2."""

    def make(folder, **keys):
        solver = {"ACCU_STEP": 3}
        hooks = [{"NAME": "CheckpointHook", "SAVE_NAME_PREFIX": "mid", "INTERVAL": 0, "INTERVAL_STEPS": 1}]
        return dropnet(
            folder=folder, epochs=2, size=20, hooks=hooks, solver=solver, SAVE_BEST_BY="-loss", **keys
        )

    return make


def test_resume_from_every_single_step_ends_bit_identical(accumulating, losses, differences):
    straight = accumulating("straight")
    straight.run()
    end = straight.read("p-last")
    assert straight.names == {
        *(f"mid-{step}" for step in range(1, 11)), "p-5", "p-10", "p-best", "p-last",
    }  # fmt: skip
    assert end["total_updates"] == 4
    starts = [f"mid-{step}" for step in range(1, 11)] + ["p-5", "p-10", "p-best"]
    for start in starts:
        state = straight.read(start)
        rest = accumulating(f"from-{start}")
        solver = rest.run(*resumed_from(straight.path(start)))
        if solver.nothing_to_do:  # the best was the end
            assert differences(state["model"], end["model"]) == []
            continue
        assert differences(rest.read("p-last"), end) == [], f"resumed from {start}"
        step = state["total_iter"]["train"]
        if step < 10:
            assert losses(f"from-{start}") == losses("straight")[step:], f"resumed from {start}"
        # every file that both wrote is the same, on the way too
        for name in rest.names:
            assert differences(rest.read(name), straight.read(name)) == [], f"{name}, resumed from {start}"


def test_open_window_is_in_the_file_with_its_gradient(probe):
    job = probe([1.0, 2.0, 4.0], epochs=1, INTERVAL=0, INTERVAL_STEPS=1, solver={"ACCU_STEP": 2})
    job.run()
    assert job.read("p-1")["window"]["count"] == 1
    assert float(job.read("p-1")["window"]["gradients"]["w"]) == 0.5
    assert job.read("p-2")["window"] is None
    assert job.read("p-3")["window"] is None, "the short window at the epoch's end is closed"

    solver = job.run(*resumed_from(job.path("p-1")))
    assert float(solver.model.w.detach()) == -1.5 - 4.0


@pytest.mark.parametrize("start", ["p-last", "p-best"])
def test_c20_optimizer_state_comes_back(probe, start):
    # momentum .9 at rate .1, in double precision
    keys = {
        "model": {"DOUBLE": True},
        "optimizer": {"LEARNING_RATE": 0.1, "MOMENTUM": 0.9},
        "SAVE_LAST": True,
        "SAVE_BEST_BY": "-loss",
    }
    straight = probe([1.0], folder="straight", epochs=6, **keys)
    straight.run()
    assert straight.weight("p-last") == pytest.approx(-1.782969, abs=1e-12)

    half = probe([1.0], folder="half", epochs=3, **keys)
    half.run()
    rest = probe([1.0], folder="rest", epochs=6, **keys)
    rest.run(*resumed_from(half.path(start)))
    assert rest.weight("p-last") == straight.weight("p-last")


@pytest.mark.parametrize(("steps", "start"), [(5, "p-5"), (8, "p-8")])
def test_c27_resume_inside_an_epoch_sees_every_batch_once(probe, recorder, steps, start):
    values = [float(number) for number in range(1, 9)]
    job = probe(values, INTERVAL=0, INTERVAL_STEPS=steps, SAVE_LAST=True)
    job.run()
    assert job.weight("p-last") == -72.0

    solver = job.run(*resumed_from(job.path(start)))
    assert solver.total_updates == 16
    assert job.weight("p-last") == -72.0
    assert [step for _, step, _ in recorder(solver).steps] == list(range(steps + 1, 17))


def test_resume_with_an_iterable_of_batches_of_unknown_length(probe):
    job = probe([1.0, 2.0, 4.0], epochs=-1, INTERVAL_STEPS=2, SAVE_LAST=True, solver={"MAX_STEPS": 5})
    job.run()
    assert job.weight("p-last") == -10.0
    job.run(*resumed_from(job.path("p-2")))
    assert job.weight("p-last") == -10.0


def test_raised_limit_goes_on_in_the_epoch_that_max_steps_cut(probe, recorder):
    job = probe([1.0, 2.0, 4.0], epochs=-1, SAVE_LAST=True, solver={"MAX_STEPS": 2})
    job.run()
    assert job.weight("p-last") == -3.0
    solver = job.run(*resumed_from(job.path("p-last"), "SOLVER.MAX_STEPS=4"))
    assert [(epoch, step) for epoch, step, _ in recorder(solver).steps] == [(1, 3), (2, 4)]
    assert job.weight("p-last") == -8.0


# --- what is still to come after a checkpoint ----------------------------------------------------------------------


def test_checkpoint_of_an_epoch_stands_before_its_eval(probe, recorder):
    job = probe(epochs=2, evals=[0.5, 0.7], SAVE_BEST_BY="acc", SAVE_LAST=True)
    job.run()
    assert job.read("p-3")["position"]["pending"] == ["eval"]
    assert job.read("p-last")["position"]["pending"] == []

    solver = job.run(*resumed_from(job.path("p-3")))
    assert recorder(solver).evals == [1, 2], "the first epoch's eval is run, not skipped"
    solver = job.run(*resumed_from(job.path("p-best")))
    assert recorder(solver).evals == [], "nothing is decided twice"


def test_eval_that_a_step_limit_still_owes_is_run_on_resume(probe, recorder):
    # MAX_STEPS is reached in this file, and the epoch's end with its eval and its best is still to come
    job = probe(
        epochs=-1, evals=[0.5, 0.7], SAVE_BEST_BY="acc", SAVE_LAST=True, INTERVAL_STEPS=1, KEEP_LAST=0,
        hooks=[{"NAME": "Signal", "AT_STEP": 3}], solver={"MAX_STEPS": 3},
    )  # fmt: skip
    stopped = job.process()
    assert stopped.returncode == 143, stopped.stderr
    assert "p-last" not in job.names
    solver = job.run("SOLVER.RESUME_FROM=auto", "SOLVER.TRAIN_HOOKS[Signal].AT_STEP=0")
    assert recorder(solver).evals == [1]
    assert job.weight("p-last") == -3.0
    assert job.read("p-best")["epoch"] == 1


def test_resuming_a_finished_run_touches_no_file_and_says_so(probe, recorder):
    job = probe(evals=[0.5, 0.7], SAVE_LAST=True, SAVE_BEST_BY="acc", KEEP_LAST=1)
    job.run()
    before = job.content()
    assert {"std_log.txt", "config.yaml", "checkpoints/p-last.pth"} <= before.keys()
    for start in ("auto", job.path("p-last"), "last"):
        solver = job.run(f"SOLVER.RESUME_FROM={start}")
        assert recorder(solver).steps == []
        assert recorder(solver).checkpoints == []
        assert job.content() == before
        assert "finished" in job.log.text
        assert "Nothing to do" in job.log.text


def test_resuming_a_finished_run_in_a_new_process_exits_0(probe):
    job = probe(SAVE_LAST=True)
    job.run()
    before = job.content()
    done = job.process("SOLVER.RESUME_FROM=auto")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Nothing to do" in done.stdout
    assert job.content() == before


# --- which file ----------------------------------------------------------------------------------------------------


def test_auto_picks_by_position_and_not_by_name_or_time(probe, recorder):
    job = probe(epochs=4)
    job.run()
    job.path("p-9").rename(job.path("a"))  # the furthest that is left; first by name, oldest by time
    job.path("p-12").unlink()
    job.path("p-3").rename(job.path("z-999"))
    job.path("z-999").touch()
    solver = job.run("SOLVER.RESUME_FROM=auto")
    assert recorder(solver).steps[0][:2] == (4, 10)
    assert str(job.path("a")) in job.log.text


def test_auto_prefers_the_later_of_two_files_of_one_step(probe):
    # the last one stands after the last eval, the step's file before it
    job = probe(evals=[0.5, 0.7], SAVE_LAST=True)
    job.run()
    job.run("SOLVER.RESUME_FROM=auto")
    assert "Nothing to do" in job.log.text


def test_auto_without_any_checkpoint_is_a_fresh_start(probe):
    job = probe(SAVE_LAST=True)
    job.run("SOLVER.RESUME_FROM=auto")
    assert job.weight("p-last") == -6.0
    assert "fresh start" in job.log.text


def test_new_run_in_a_folder_with_checkpoints_is_refused(probe):
    job = probe()
    job.run()
    before = job.content()
    with pytest.raises(ConfigError) as caught:
        job.run()
    assert caught.value.exit_status == 2
    assert str(job.work_dir) in str(caught.value)
    assert "--resume auto" in str(caught.value)
    assert "--overwrite" in str(caught.value)
    assert job.content() == before


def test_overwrite_begins_anew(probe):
    job = probe(epochs=2)
    job.run()
    solver = job.run("SOLVER.MAX_EPOCHS=1", overwrite=True)
    assert job.names == {"p-3"}
    assert solver.total_updates == 3
    assert job.weight("p-3") == -3.0


def test_resume_argument_is_resume_from(probe):
    job = probe()
    job.run()
    solver = job.run("SOLVER.MAX_EPOCHS=3", resume="auto")
    assert solver.total_updates == 9


def test_resume_without_a_hook_that_loads(probe):
    job = probe(solver={"TRAIN_HOOKS": [{"NAME": "Step"}]})
    with pytest.raises(ConfigError) as caught:
        job.run("SOLVER.RESUME_FROM=auto")
    assert "SOLVER.RESUME_FROM" in str(caught.value)
    assert "CheckpointHook" in str(caught.value)


def test_two_hooks_load_once(probe, monkeypatch):
    loads = []
    job = probe(hooks=[{"NAME": "CheckpointHook", "SAVE_NAME_PREFIX": "q"}])
    job.run()
    whole = torch.load
    monkeypatch.setattr(torch, "load", lambda path, **keys: loads.append(str(path)) or whole(path, **keys))
    solver = job.run(
        *resumed_from(job.path("p-6"), "SOLVER.MAX_EPOCHS=3", "SOLVER.TRAIN_HOOKS[Recorder]=!delete")
    )
    assert loads == [str(job.path("p-6"))]
    assert solver.total_updates == 9


def test_checkpoint_of_another_model_names_the_difference_and_loads_nothing(probe, dropnet):
    other = dropnet(folder="other", epochs=1)
    other.run()
    job = probe()
    with pytest.raises(RunError) as caught:
        job.run(*resumed_from(other.path("p-last")))
    assert "another model" in str(caught.value)
    assert "0.weight" in str(caught.value)
    assert job.names == set()


def test_changed_learning_rate_counts_and_is_said(probe):
    job = probe(epochs=1)
    job.run()
    solver = job.run(
        *resumed_from(job.path("p-3"), "SOLVER.MAX_EPOCHS=2", "SOLVER.OPTIMIZER.LEARNING_RATE=2.0")
    )
    assert float(solver.model.w.detach()) == -3.0 - 6.0
    (line,) = job.log.of("WARNING")
    assert line.endswith("SOLVER.OPTIMIZER.LEARNING_RATE was 1.0, is now 2.0")
    assert any("SOLVER.MAX_EPOCHS was 1, is now 2" in line for line in job.log.of("INFO"))


def test_state_of_a_hook_that_is_gone_or_new_is_said(dropnet):
    job = dropnet(epochs=1)
    job.run()
    start = resumed_from(job.path("p-last"), "SOLVER.MAX_EPOCHS=2")
    job.run(*start, "SOLVER.TRAIN_HOOKS[Stateful]=!delete")
    assert any("Stateful" in line and "checkpoint_task.py" in line for line in job.log.of("WARNING"))

    without = dropnet(folder="b", epochs=1)
    without.run("SOLVER.TRAIN_HOOKS[Stateful]=!delete")
    without.run(*resumed_from(without.path("p-last"), "SOLVER.MAX_EPOCHS=2"))
    assert any("Stateful" in line for line in without.log.of("WARNING"))


# --- eval and test of a checkpoint ---------------------------------------------------------------------------------


def test_e17_test_of_a_checkpoint_changes_nothing(dropnet, differences):
    job = dropnet(epochs=2, solver={"TEST_DATA": {"NAME": "NoisyRows", "BATCH_SIZE": 4, "SIZE": 8}})
    job.run()
    before, state = job.content(), job.read("p-last")
    outcomes = []
    for _ in range(2):
        solver = job.run(mode="test", resume="last")
        outcomes.append(solver.epoch_outputs["test"])
        assert differences(dict(solver.model.state_dict()), dict(state["model"])) == []
        assert solver.total_updates == state["total_updates"]
        assert not solver.iter_outputs or not solver.iter_outputs["loss"].requires_grad
        assert all(parameter.grad is None for parameter in solver.model.parameters())
    assert outcomes[0] == outcomes[1]
    after = job.content()
    assert {name: at for name, at in after.items() if name.startswith("checkpoints/")} == {
        name: at for name, at in before.items() if name.startswith("checkpoints/")
    }
    assert after["config.yaml"] == before["config.yaml"]
