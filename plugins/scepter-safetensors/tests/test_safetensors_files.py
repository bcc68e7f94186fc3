"""Which files there are, and when."""

from __future__ import annotations

import resource

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from scepter_core import ConfigError, RunError, Stopped


def weight(path):
    return float(load_file(path)["w"])


@pytest.mark.parametrize(
    ("interval", "steps"), [(4, [4, 8, 10]), (5, [5, 10]), (0, [10]), (-1, [10]), (1000, [10]), (1, range(1, 11))]
)
def test_d05_files_and_names(job, interval, steps):
    job.run(INTERVAL=interval)
    assert job.names == {f"m-{step}.safetensors" for step in steps}
    for step in steps:
        assert weight(job.path(step)) == -step  # after that step's update


def test_defaults(job, tmp_path):
    solver = job.run(SAVE_NAME_PREFIX="ldm_step")
    (hook,) = [hook for hook in solver.hooks_dict["train"] if hook.name == "SafetensorsHook"]
    assert (hook.priority, hook.cfg.INTERVAL, hook.cfg.SAVE_NAME_PREFIX) == (200, 1000, "ldm_step")
    assert job.names == {"ldm_step-10.safetensors"}


def test_the_last_step_is_written_once(job, monkeypatch):
    written = []
    solver_class = type(job.run(size=1))
    export = solver_class.save_safetensors
    monkeypatch.setattr(solver_class, "save_safetensors", lambda self: written.append(self.train_steps) or export(self))
    job.run(INTERVAL=5)
    assert written == [5, 10]


def test_steps_count_over_epochs_and_micro_batches(job):
    job.run(size=3, epochs=3, INTERVAL=4, solver={"ACCU_STEP": 2})
    assert job.names == {"m-4.safetensors", "m-8.safetensors", "m-9.safetensors"}


def test_weights_are_those_after_every_other_hook(job):
    job.run(INTERVAL=4, hooks=[{"NAME": "ExportLater"}])
    assert [weight(job.path(step)) for step in (4, 8, 10)] == [4.0, 8.0, 10.0]


def test_an_error_leaves_what_was_there_and_writes_no_last_file(job):
    with pytest.raises(KeyError):
        job.run(INTERVAL=4, trouble={"FAIL_AT": 7})
    assert job.names == {"m-4.safetensors"}


def test_an_error_in_the_last_eval_too(job):
    trouble = {"NAME": "ExportTrouble", "FAIL_IN_EVAL": True}
    with pytest.raises(KeyError):
        job.run(INTERVAL=4, eval_hooks=[trouble], solver={"EVAL_DATA": {"NAME": "ExportData"}})
    assert job.names == {"m-4.safetensors", "m-8.safetensors"}


def test_a_run_that_a_signal_ends_writes_its_last_weights(job):
    with pytest.raises(Stopped):
        job.run(INTERVAL=4, trouble={"STOP_AT": 7})
    assert job.names == {"m-4.safetensors", "m-7.safetensors"}
    assert weight(job.path(7)) == -7.0


def test_nothing_before_the_first_step(job):
    with pytest.raises(Stopped):
        job.run(INTERVAL=1, trouble={"STOP_EARLY": True})
    assert job.names == set()


def test_a_run_without_training_writes_nothing(job):
    data = {"NAME": "ExportData"}
    job.run(eval_hooks=[{"NAME": "SafetensorsHook", "INTERVAL": 1}], solver={"MODE": "eval", "EVAL_DATA": data})
    assert job.names == set()


def test_an_eval_of_trained_weights_writes_nothing(job, tmp_path):
    saved, data = str(tmp_path / "state.pth"), {"EVAL_DATA": {"NAME": "ExportData"}}
    job.run(trouble={"SAVE_AT": 10, "SAVE": saved})
    job.path(10).unlink()
    hooks = [{"NAME": "ExportTrouble", "LOAD": saved}, {"NAME": "SafetensorsHook", "INTERVAL": 1}]
    solver = job.run(eval_hooks=hooks, solver={"MODE": "eval", **data})
    assert solver.train_steps == 10
    assert job.names == set()


def test_a_new_run_replaces_the_files_of_an_older_one(job):
    job.run(INTERVAL=5)
    job.run(INTERVAL=5, rate=2.0)
    assert [weight(job.path(step)) for step in (5, 10)] == [-10.0, -20.0]
    job.run(INTERVAL=0, rate=3.0)
    assert weight(job.path(10)) == -30.0


def test_among_eval_hooks_it_writes_the_last_weights_and_never_counts_eval_steps(job):
    hook = {"NAME": "SafetensorsHook", "INTERVAL": 1, "SAVE_NAME_PREFIX": "e"}
    job.run(size=3, epochs=2, INTERVAL=0, eval_hooks=[hook], solver={"EVAL_DATA": {"NAME": "ExportData", "SIZE": 5}})
    assert job.names == {"m-6.safetensors", "e-6.safetensors"}


def test_a_finished_run_is_left_alone(job, tmp_path):
    saved = str(tmp_path / "state.pth")
    job.run(trouble={"SAVE_AT": 10, "SAVE": saved})
    job.path(10).unlink()
    # the state of the epoch's end, with nothing left to do
    solver = job.run(trouble={"LOAD": saved})
    assert solver.nothing_to_do
    assert job.names == set()


def test_resumed_for_an_eval_only_it_writes_what_was_owed(job, tmp_path):
    saved, data = str(tmp_path / "state.pth"), {"EVAL_DATA": {"NAME": "ExportData"}}
    failing = [{"NAME": "ExportTrouble", "FAIL_IN_EVAL": True}]
    with pytest.raises(KeyError):
        job.run(trouble={"SAVE_AT": 10, "SAVE": saved}, eval_hooks=failing, solver=data)
    assert job.names == set()
    job.run(trouble={"LOAD": saved}, solver=data)
    assert job.names == {"m-10.safetensors"}
    assert weight(job.path(10)) == -10.0
    before = job.path(10).stat().st_mtime_ns
    job.run(trouble={"LOAD": saved}, solver=data)
    assert job.path(10).stat().st_mtime_ns == before


def test_a_resumed_run_goes_on_counting(job, tmp_path):
    saved = str(tmp_path / "state.pth")
    job.run(size=5, INTERVAL=4, trouble={"SAVE_AT": 5, "SAVE": saved})
    job.run(size=5, epochs=2, INTERVAL=4, trouble={"LOAD": saved})
    assert job.names == {f"m-{step}.safetensors" for step in (4, 5, 8, 10)}
    assert weight(job.path(8)) == -8.0


def test_two_hooks_with_two_prefixes(job):
    job.run(INTERVAL=5, hooks=[{"NAME": "SafetensorsHook", "SAVE_NAME_PREFIX": "n", "INTERVAL": 0}])
    assert job.names == {"m-5.safetensors", "m-10.safetensors", "n-10.safetensors"}


def test_one_prefix_twice_is_an_error(job):
    with pytest.raises(ConfigError, match=r"SAVE_NAME_PREFIX.*another SafetensorsHook has the prefix m already"):
        job.run(eval_hooks=[{"NAME": "SafetensorsHook", "SAVE_NAME_PREFIX": "m"}])
    assert not job.work_dir.exists()


@pytest.mark.parametrize("prefix", ["", "a/b", "..", ".hidden", "a:b", "a\\b", "a\nb", "a*"])
def test_a_prefix_is_a_plain_file_name(job, prefix):
    with pytest.raises(ConfigError, match="must be a plain file name"):
        job.run(SAVE_NAME_PREFIX=prefix)


def test_no_space_leaves_the_older_file_and_nothing_half_written(job):
    job.run(INTERVAL=0, size=4)
    before = job.path(4).read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(RunError, match=r"could not write the weights .*m-4\.safetensors: .*File too large"):
            job.run(INTERVAL=4, size=4, hooks=[{"NAME": "ExportFileLimit"}], solver={"LOG_FILE": None})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert job.path(4).read_bytes() == before
    assert job.names == {"m-4.safetensors"}


def test_leftovers_of_a_process_that_was_killed_are_removed(job):
    job.folder.mkdir(parents=True)
    (job.folder / ".m-3.safetensors.17.tmp").write_bytes(b"half")
    (job.folder / "notes.txt").write_text("mine")
    job.run()
    assert job.names == {"m-10.safetensors", "notes.txt"}


def test_training_is_the_same_to_the_bit(job):
    with_files = job.run("ExportTied", rate=0.1, epochs=2, INTERVAL=1).model.state_dict()
    without = job.run("ExportTied", rate=0.1, epochs=2, INTERVAL=0).model.state_dict()
    assert all(torch.equal(with_files[name], without[name]) for name in without)


def test_values_are_of_the_step_not_of_later_ones(job):
    job.run(INTERVAL=3)
    with safe_open(job.path(3), framework="pt") as file:
        assert file.metadata() == {"format": "pt", "step": "3", "epoch": "1"}
        assert float(file.get_tensor("w")) == -3.0
