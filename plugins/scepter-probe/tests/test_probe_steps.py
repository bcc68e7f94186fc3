"""In which steps probes are written, of what, and that nothing else changes."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch

from scepter_core import ConfigError, RunError


def all_kinds(model, x, loss):
    """One of each, and then the batch is changed in place."""
    model.register_probe(
        {"graph": loss * x, "count": x.long(), "array": x.numpy(), "text": "step", "batch": x, "loss": loss}
    )
    x.fill_(-1.0)


def test_e16_every_interval_detached_copies_of_that_moment(probe):
    probed = probe(all_kinds, interval=4)
    assert probed.dumps == ["train/step_4", "train/step_8"]
    for step in (4, 8):
        dump = f"train/step_{step}"
        assert probed.files(dump) == ["array.npy", "batch.npy", "count.npy", "graph.npy", "probe.json"]
        index = probed.index(dump)
        x = [float(step)] * 3
        assert probed.array("batch.npy", dump).tolist() == [x]
        assert probed.array("array.npy", dump).tolist() == [x]
        assert probed.array("count.npy", dump).tolist() == [[step] * 3]
        assert probed.array("count.npy", dump).dtype == np.int64
        assert probed.array("graph.npy", dump) == pytest.approx(index["loss"] * np.array([x]))
        assert index["text"] == "step"
        assert index["graph"] == {"file": "graph.npy", "shape": [1, 3], "dtype": "torch.float32"}
        (line,) = [line for line in probed.lines if f"step {step} |" in line]
        assert line.startswith(f"INFO probe train step {step} | graph graph.npy | count count.npy | ")
        assert f" | text step | batch batch.npy | loss {index['loss']:.6g} | in {probed.folder}" in line


def test_e16_a_parameter_is_shown_as_the_forward_saw_it(probe):
    weights = []

    def offer(model, x, loss):
        weights.append(float(model.w.detach()))
        model.register_probe({"w": model.w})

    probed = probe(offer, size=3)
    weights.append(float(probed.solver.model.w.detach()))
    assert len(set(weights)) == 4  # every update moved it
    assert [probed.index(f"train/step_{step}")["w"] for step in (1, 2, 3)] == weights[:3]


def test_e16_nested_values_are_copies_too(probe):
    def offer(model, x, loss):
        model.register_probe({"pair": [x, {"deep": x.numpy()}]})
        x.fill_(-1.0)

    probed = probe(offer, size=1)
    assert probed.array("pair.0.npy").tolist() == [[1.0] * 3]
    assert probed.array("pair.1.deep.npy").tolist() == [[1.0] * 3]


def test_e16_training_is_the_same_to_the_bit(probe):
    def offer(model, x, loss):
        model.register_probe({"x": x, "noise": torch.rand(2) if not model.training else loss})

    hooks = [{"NAME": "ProbeDataHook", "PROB_INTERVAL": 1}]
    with_it = probe(offer, interval=1, epochs=2, eval_hooks=hooks).solver
    without = probe(offer, seen=False, epochs=2, eval_hooks=[], folder="other").solver
    assert torch.equal(with_it.model.w, without.model.w)
    assert float(with_it.model.w.detach()) != 1.0
    assert with_it.epoch_outputs == without.epoch_outputs


def test_e16_evals_have_probes_of_their_own_one_each(probe):
    def offer(model, x, loss):
        if model.training or x[0, 0] > 1:  # nothing in an eval's first iteration
            model.register_probe({"x": x[0, 0], "training": model.training})

    hooks = [{"NAME": "ProbeDataHook"}]
    probed = probe(offer, interval=4, size=6, epochs=2, eval_hooks=hooks)
    assert probed.dumps == ["eval/step_12", "eval/step_6", "train/step_12", "train/step_4", "train/step_8"]
    assert probed.index("train/step_12") == {"x": 6.0, "training": True}
    assert probed.index("eval/step_6") == probed.index("eval/step_12") == {"x": 2.0, "training": False}
    assert probed.solver.eval_interval == 1


def test_test_mode(probe):
    keys = {"TEST_DATA": {"NAME": "ProbeTestData"}, "TEST_HOOKS": [{"NAME": "ProbeDataHook"}]}
    probed = probe({"a": 1}, interval=100, size=2, **keys)
    assert probed.dumps == ["test/step_2"]


def test_only_an_eval(probe):
    probed = probe({"a": 1}, eval_hooks=[{"NAME": "ProbeDataHook"}], MODE="eval")
    assert probed.dumps == ["eval/step_0"]


@pytest.mark.parametrize("interval", [0, -1, -4])
def test_e07_off(probe, interval):
    hooks = [{"NAME": "ProbeDataHook", "PROB_INTERVAL": interval}]
    probed = probe(all_kinds, interval=interval, eval_hooks=hooks)
    plain = probe(all_kinds, seen=False, eval_hooks=[], folder="plain")
    assert not probed.folder.exists()
    assert not any("probe" in line for line in probed.lines)
    assert torch.equal(probed.solver.model.w, plain.solver.model.w)


def test_nothing_offered_nothing_written(probe):
    assert not probe(None, eval_hooks=[{"NAME": "ProbeDataHook"}]).folder.exists()


def test_only_what_was_offered_in_that_step(probe):
    def offer(model, x, loss):
        model.register_probe({f"step{model.steps}": 1})

    probed = probe(offer, interval=3, size=7)
    assert probed.index("train/step_3") == {"step3": 1}
    assert probed.index("train/step_6") == {"step6": 1}


def test_between_probes_nothing_is_kept(probe):
    def offer(model, x, loss):
        offered = loss * x
        alive.tensors.append(weakref.ref(offered))
        model.register_probe({"graph": offered})

    from_hook = probe({"a": 1}, size=1, hooks=[{"NAME": "ProbeTestAlive"}], folder="first").hook("ProbeTestAlive")
    alive = type(from_hook)
    probed = probe(offer, interval=4, hooks=[{"NAME": "ProbeTestAlive"}])
    assert probed.hook("ProbeTestAlive").alive == [0] * 10
    assert len(alive.tensors) == 10


def test_only_steps_that_are_due_copy_and_other_hooks_see_the_data_in_all(probe):
    given = []

    def offer(model, x, loss):
        given.append(x)
        model.register_probe({"x": x})

    offered = probe(offer, interval=4, hooks=[{"NAME": "ProbeTestOffered"}]).hook("ProbeTestOffered").offered
    assert [data["x"].tolist() for data in offered] == [x.tolist() for x in given]
    copied = [step for step, (data, x) in enumerate(zip(offered, given, strict=True), 1) if data["x"] is not x]
    assert copied == [4, 8]


def test_parts_of_the_model_and_the_solver_offer_too(probe):
    def offer(model, x, loss):
        model.register_probe({"by": "model"})
        model.layer[1].register_probe({"part": x.sum()})

    index = probe(offer, size=1, NAME="ProbeTestSolver").index()
    assert index["by"] == "solver"
    assert index["part"] == 3.0
    assert index["batch"]["file"] == "batch.npy"
    assert index["losses"] == {"file": "losses.npy", "shape": [2], "dtype": "torch.float32"}  # had a graph


def test_two_hooks_of_one_mode(probe):
    hooks = [{"NAME": "ProbeDataHook", "PROB_INTERVAL": 2}]
    probed = probe(all_kinds, interval=4, hooks=hooks)
    assert probed.dumps == ["train/step_10", "train/step_2", "train/step_4", "train/step_6", "train/step_8"]
    assert probed.array("batch.npy", "train/step_4").tolist() == [[4.0] * 3]
    assert probed.array("batch.npy", "train/step_6").tolist() == [[6.0] * 3]


def test_a_disk_that_says_no_ends_the_run_with_the_reason(probe, tmp_path):
    blocked = str(tmp_path / "run" / "probe")
    with pytest.raises(RunError, match=r"could not write the probe .*train/step_2: .*[Nn]ot a directory"):
        probe({"a": 1}, interval=2, hooks=[{"NAME": "ProbeTestFail", "FOLDER": blocked}])


def test_no_temporary_file_stays(probe):
    probed = probe(all_kinds, interval=5)
    assert not [path for path in probed.folder.rglob("*") if path.name.startswith(".")]


def test_defaults_and_keys(probe):
    hook = probe(hooks=[{"NAME": "ProbeDataHook"}], seen=False).hook()
    assert (hook.priority, hook.cfg.PROB_INTERVAL) == (200, 1000)
    with pytest.raises(ConfigError, match="PROBE_INTERVAL: unknown key"):
        probe(hooks=[{"NAME": "ProbeDataHook", "PROBE_INTERVAL": 1}])
