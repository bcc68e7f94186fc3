"""`scepter convert`: SCEPTER's checkpoints become ours, whole, exact, and without running anything in them."""

from __future__ import annotations

import os
import zipfile
from collections import OrderedDict

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from scepter_core import run

SGD = ("SGD", {"lr": 0.2, "momentum": 0.9, "weight_decay": 5e-4})
ADAMW = ("AdamW", {"lr": 0.02, "weight_decay": 0.1})


def _section(name, options, **more):
    keys = {("LEARNING_RATE" if key == "lr" else key.upper()): value for key, value in options.items()}
    return {"NAME": name, **keys, **more}


def _equal(left, right):
    if isinstance(left, torch.Tensor):
        return torch.equal(left, torch.as_tensor(right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    return left == right


@pytest.fixture
def saved(plain_run, tmp_path):
    """A file of TrainValSolver's after two epochs of SGD."""
    path = tmp_path / "epoch-00002.pth"
    torch.save(plain_run(*SGD).train(2).by_epochs(), path)
    return path


# --- what a run that resumes does ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "options"), [SGD, ADAMW])
def test_a_converted_run_goes_on_as_if_it_had_never_changed_engines(
    plain_run, config, convert, tmp_path, capsys, name, options
):
    old, new = tmp_path / "epoch-00002.pth", tmp_path / "new.pth"
    plain = plain_run(name, options).train(2)
    torch.save(plain.by_epochs(), old)
    done = convert(old, new)
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{new}: 4 tensors of weights; epoch 2, step 6, update 6; the optimizer's state",
        f"from {old}: SCEPTER's layout with `state_dict`",
        "not taken over: lr_scheduler",
    ]
    capsys.readouterr()
    solver = run(config(_section(name, options, FUSED=False)), resume=str(new))
    said = capsys.readouterr().out
    hooks = "train/BackwardHook, train/LrHook, train/CheckpointHook:ldm_step"
    assert said.count("WARNING") == said.count(f"the checkpoint has no state of {hooks}: they begin anew") == 1
    assert not any(
        words in said for words in ("SEED was", "changed since the checkpoint")
    )
    plain.train(2)
    assert (solver.epoch, solver.train_steps, solver.total_updates, solver.counters.total_iter["eval"]) == (
        4,
        12,
        12,
        0,
    )
    assert _equal(dict(plain.model.state_dict()), dict(solver.model.state_dict()))
    assert _equal(plain.optimizer.state_dict()["state"], solver.optimizer.state_dict()["state"])


@pytest.mark.parametrize(("name", "options"), [SGD, ADAMW])
@pytest.mark.parametrize("layout", ["by epochs", "by steps"])
def test_a_run_of_ours_comes_back_from_scepters_layouts(config, convert, tmp_path, capsys, name, options, layout):
    whole = run(config(_section(name, options)))
    state = torch.load(tmp_path / "run/checkpoints/ldm_step-6.pth", weights_only=True)
    optimizer = {"state": state["optimizer"]["state"], "param_groups": state["optimizer"]["param_groups"]}
    for group in optimizer["param_groups"]:  # as an older torch saves them
        for option in ("fused", "foreach", "decoupled_weight_decay"):
            group.pop(option, None)
    weights = OrderedDict((f"module.{key}", value) for key, value in state["model"].items())
    old, new = tmp_path / "ldm_step-6.pth", tmp_path / "new.pth"
    by_epochs = {"epoch": 2, "total_iters": {"train": 6}, "state_dict": weights, "checkpoint": optimizer}
    by_steps = {"model": weights, "optimizer": optimizer, "scaler": {}}
    torch.save(by_epochs if layout == "by epochs" else by_steps, old)
    done = convert(old, new, "--epoch", "2")
    assert "the weights' names lost the `module.` that all of them began with" in done.out
    again = run(config(_section(name, options), WORK_DIR=str(tmp_path / "again")), resume=str(new))
    assert "changed since the checkpoint" not in capsys.readouterr().out
    assert _equal(dict(whole.model.state_dict()), dict(again.model.state_dict()))
    assert _equal(whole.optimizer.state_dict(), again.optimizer.state_dict())
    assert (again.epoch, again.train_steps, again.total_updates) == (4, 12, 12)


def test_a_changed_learning_rate_counts_and_is_said(saved, config, convert, tmp_path, capsys):
    convert(saved, tmp_path / "new.pth")
    solver = run(config(_section("SGD", {**SGD[1], "lr": 0.1}), MAX_EPOCHS=3), resume=str(tmp_path / "new.pth"))
    assert "lr was 0.2, is now 0.1" in capsys.readouterr().out
    assert solver.optimizer.param_groups[0]["lr"] == 0.1 * 0.5**2


def test_metrics_and_an_eval_begin_anew(saved, config, convert, tmp_path):
    convert(saved, tmp_path / "new.pth")
    metric = {"NAME": "AccuracyMetric", "KEYS": ["logits", "label"]}
    evaluated = {"EVAL_DATA": {"NAME": "MigrationRows", "BATCH_SIZE": 4}, "METRICS": [metric]}
    solver = run(config(_section(*SGD), MAX_EPOCHS=3, **evaluated), resume=str(tmp_path / "new.pth"))
    assert set(solver.epoch_outputs["eval"]) == {"loss", "acc"}


def test_another_model_is_refused_with_what_differs(saved, config, convert, tmp_path):
    state = torch.load(saved, weights_only=False)
    state["state_dict"]["head.weight"] = state["state_dict"].pop("net.2.weight")
    torch.save(state, saved)
    convert(saved, tmp_path / "new.pth")
    with pytest.raises(Exception, match=r"of another model; it lacks: net\.2\.weight; has besides: head\.weight"):
        run(config(_section(*SGD)), resume=str(tmp_path / "new.pth"))


# --- what the layouts say ------------------------------------------------------------------------------------------


def _converted(state, path, convert, *options):
    torch.save(state, path)
    new = path.parent / "converted.pth"
    done = convert(path, new, "--overwrite", *options)
    assert done.status == 0, done.err
    return torch.load(new, weights_only=True), done.out


def test_a_file_of_a_step_counts_the_step_that_its_name_has(plain_run, convert, tmp_path):
    run_ = plain_run(*SGD).train(2)
    state, said = _converted({**run_.by_epochs(), "total_iters": {"train": 3}}, tmp_path / "ldm_step-4.pth", convert)
    assert (state["epoch"], state["total_iter"]["train"]) == (1, 4)
    assert "saved inside epoch 2, which begins anew in a run that resumes: --epoch 2 if it was at its end" in said
    state, said = _converted(run_.by_epochs(), tmp_path / "ldm_step-7.pth", convert, "--epoch", "2", "--step", "6")
    assert (state["epoch"], state["total_iter"]["train"]) == (2, 6)
    assert "begins anew" not in said


def test_iterations_as_one_number_are_the_training_steps(plain_run, convert, tmp_path):
    state, _ = _converted({**plain_run(*SGD).train(2).by_epochs(), "total_iters": 6}, tmp_path / "a.pth", convert)
    assert (state["epoch"], state["total_iter"]["train"]) == (2, 6)


@pytest.mark.parametrize(
    ("name", "step"), [("ldm_step-40.pth", 40), ("a-b-7.pth", 7), ("epoch-00003.pth", 0), ("x.pth", 0)]
)
def test_the_step_of_a_file_without_counters_is_in_its_name(plain_run, convert, tmp_path, name, step):
    state, _ = _converted(plain_run(*SGD).train(1).by_steps(), tmp_path / name, convert)
    assert (state["epoch"], state["total_iter"], state["total_updates"]) == (
        0,
        {"train": step, "eval": 0, "test": 0},
        step,
    )


def test_updates_are_those_that_the_optimizer_counted(plain_run, convert, tmp_path):
    adam = plain_run(*ADAMW).train(1)
    state, _ = _converted({**adam.by_epochs(), "total_iters": {"train": 12}}, tmp_path / "a.pth", convert)
    assert (state["total_iter"]["train"], state["total_updates"]) == (12, 3)


def test_modules_saved_apart_become_one(plain_run, convert, tmp_path):
    weights = plain_run(*SGD).model.net.state_dict()
    state, said = _converted({"model": {"net": weights}, "optimizer": {"net": {}}}, tmp_path / "a.pth", convert)
    assert list(state["model"]) == [f"net.{name}" for name in weights]
    assert "not taken over: optimizer (sharded by module)" in said


@pytest.mark.parametrize("groups", [None, [], [{"lr": 1.0}], [3], {"params": []}])
def test_what_is_no_optimizer_is_left_out(plain_run, convert, tmp_path, groups):
    state, said = _converted(
        plain_run(*SGD).by_steps(optimizer={"state": {}, "param_groups": groups}), tmp_path / "a.pth", convert
    )
    assert (state["optimizer"] is None) == (groups != [])
    assert ("the optimizer's state" in said) == (groups == [])


def test_a_scaler_is_taken_over(plain_run, convert, tmp_path):
    scaler = {
        "scale": 1024.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 3,
    }
    state, said = _converted(plain_run(*SGD).by_steps(scaler=scaler), tmp_path / "a.pth", convert)
    assert state["scaler"] == scaler
    assert "the scaler's state" in said


def test_a_plain_state_dict_and_a_strange_one(plain_run, convert, tmp_path):
    weights = plain_run(*SGD).model.state_dict()
    state, said = _converted(weights, tmp_path / "resnet-5.pth", convert)
    assert (list(state["model"]), state["epoch"], state["total_iter"]["train"]) == (list(weights), 0, 0)
    assert "a plain state dict" in said
    foreign = {"state_dict": weights, "epoch": 7, "global_step": 70, "optimizer_states": []}
    state, said = _converted(foreign, tmp_path / "lightning.pth", convert)
    assert (state["epoch"], state["total_iter"]["train"], state["optimizer"]) == (0, 0, None)
    assert "not taken over: epoch, global_step, optimizer_states" in said


def test_names_keep_their_prefix_where_they_are_asked_to(plain_run, convert, tmp_path):
    weights = {f"module.{name}": value for name, value in plain_run(*SGD).model.state_dict().items()}
    assert "net.0.weight" in _converted(weights, tmp_path / "a.pth", convert)[0]["model"]
    assert "module.net.0.weight" in _converted(weights, tmp_path / "a.pth", convert, "--keep-names")[0]["model"]
    weights["scale"] = torch.ones(1)  # a model with a child called `module`
    assert "module.net.0.weight" in _converted(weights, tmp_path / "a.pth", convert)[0]["model"]


def test_weights_only_begins_at_the_beginning(saved, convert, tmp_path):
    done = convert(saved, tmp_path / "new.pth", "--weights-only")
    assert "epoch 0, step 0, update 0" in done.out
    state = torch.load(tmp_path / "new.pth", weights_only=True)
    assert (state["epoch"], state["total_iter"]["train"], state["total_updates"], state["optimizer"]) == (0, 0, 0, None)


def test_files_of_the_time_before_archives(plain_run, convert, tmp_path):
    run_ = plain_run(*SGD).train(2)
    torch.save(run_.by_epochs(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert convert(tmp_path / "old.pth", tmp_path / "new.pth").status == 0
    state = torch.load(tmp_path / "new.pth", weights_only=True)
    assert _equal(dict(run_.model.state_dict()), state["model"])


# --- safetensors ---------------------------------------------------------------------------------------------------


def test_to_safetensors_from_scepter_and_from_ours(plain_run, saved, config, convert, tmp_path):
    weights = dict(plain_run(*SGD).train(2).model.state_dict())
    done = convert(saved, tmp_path / "a.safetensors")
    assert done.out.splitlines()[0] == f"{tmp_path}/a.safetensors: 4 tensors of weights; epoch 2, step 6"
    assert _equal(weights, load_file(tmp_path / "a.safetensors"))
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt", "step": "6", "epoch": "2"}
    run(config(_section(*SGD, FUSED=False)))
    ours = tmp_path / "run/checkpoints/ldm_step-6.pth"
    assert convert(ours, tmp_path / "b.safetensors").status == 0
    assert _equal(weights, load_file(tmp_path / "b.safetensors"))
    refused = convert(ours, tmp_path / "b.pth")
    assert (refused.status, refused.err) == (2, f"{ours} is a checkpoint of this engine already: nothing to convert\n")
    assert convert(ours, tmp_path / "b.pth", "--weights-only").status == 0


def test_what_safetensors_cannot_hold_is_named(convert, tmp_path):
    table = torch.arange(6.0).reshape(2, 3)
    state = {"in": table, "out": table, "turned": table.T, "count": 3, "sparse": torch.eye(2).to_sparse()}
    torch.save({"model": state}, tmp_path / "a.pth")
    done = convert(tmp_path / "a.pth", tmp_path / "a.safetensors")
    assert done.out.splitlines()[0].startswith(f"{tmp_path}/a.safetensors: 2 tensors of weights;")
    left_out = "out (tied to a weight that is there), count (no plain tensor), sparse (no plain tensor)"
    assert done.out.splitlines()[2] == f"not taken over: {left_out}"
    loaded = load_file(tmp_path / "a.safetensors")
    assert _equal({"in": table, "turned": table.T}, loaded)
    assert loaded["turned"].is_contiguous()


def test_a_kind_of_number_that_safetensors_has_no_name_for(convert, tmp_path):
    torch.save({"w": torch.ones(2, dtype=torch.complex128)}, tmp_path / "a.pth")
    done = convert(tmp_path / "a.pth", tmp_path / "a.safetensors")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"cannot convert {tmp_path}/a.pth: safetensors cannot hold its weights: ")
    assert not (tmp_path / "a.safetensors").exists()


# --- what is refused -----------------------------------------------------------------------------------------------


class Attack:
    """What runs when it is unpickled makes a folder."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.parametrize("place", ["state_dict", "checkpoint", "lr_scheduler", "total_iters"])
def test_what_a_file_asks_to_run_does_not_run(plain_run, convert, tmp_path, place, archive):
    state = {**plain_run(*SGD).by_epochs(), place: Attack(tmp_path / "attacked")}
    torch.save(state, tmp_path / "a.pth", _use_new_zipfile_serialization=archive)
    done = convert(tmp_path / "a.pth", tmp_path / "new.pth")
    assert done.status == 1
    assert done.err == (
        f"cannot read {tmp_path}/a.pth: it names posix.mkdir; a checkpoint is read without running code, and may hold "
        "numbers, text and tensors only\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pth"]


def _nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def _doubling(times):
    value = [0]
    for _ in range(times):
        value = [value, value]
    return value


def _cycle():
    value = []
    value.append(value)
    return value


WEIGHTS = {"w": torch.ones(2)}
REFUSED = {
    "a list": ([1, 2], "it holds a list, not a dict"),
    "no layout": ({"alpha": 1, "beta": 2}, "no layout that is known. Its keys: alpha, beta; known are files with"),
    "many keys": ({f"k{n}": n for n in range(20)}, "k10, k11 and 8 more; known are"),
    "an empty dict": ({}, "Its keys: none;"),
    "no tensors": ({"model": {"w": 1.0}}, "what it has for weights are no tensors by name"),
    "no names": ({"model": {1: torch.ones(1)}}, "what it has for weights are no tensors by name"),
    "half a checkpoint of ours": ({"format": 1, "position": {}}, "what it has for weights are no tensors by name"),
    "a negative epoch": ({"state_dict": WEIGHTS, "total_iters": {}, "epoch": -1}, "its `epoch` is not a count"),
    "a huge epoch": ({"state_dict": WEIGHTS, "total_iters": {}, "epoch": 10**500}, "its `epoch` is not a count"),
    "a text for steps": ({"state_dict": WEIGHTS, "total_iters": {"train": "3"}}, "its `total_iters` is not a count"),
    "deep lists": ({"model": WEIGHTS, "x": _nested(200)}, "nested more than 50 deep"),
    "a cycle": ({"model": WEIGHTS, "x": _cycle()}, "nested more than 50 deep"),
    "no numbers": ({"model": {"w": torch.ones(2, device="meta")}}, "it holds a tensor without its numbers"),
    "an int object": ({"model": WEIGHTS, "x": int}, "it holds a "),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_checkpoint_is_refused_and_nothing_is_written(convert, tmp_path, kind):
    state, message = REFUSED[kind]
    torch.save(state, tmp_path / "a.pth")
    done = convert(tmp_path / "a.pth", tmp_path / "new.pth")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"cannot convert {tmp_path}/a.pth: ")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pth"]


def test_what_is_shared_in_a_file_is_copied_once(convert, tmp_path):
    torch.save({"model": WEIGHTS, "x": _doubling(40)}, tmp_path / "a.pth")  # 2**40 entries if it were not
    assert convert(tmp_path / "a.pth", tmp_path / "new.pth").status == 0


def test_a_tensor_that_is_all_promise_makes_no_file(convert, tmp_path):
    torch.save({"w": torch.ones(1).expand(10**12)}, tmp_path / "a.pth")
    done = convert(tmp_path / "a.pth", tmp_path / "new.safetensors")
    assert (done.status, done.out) == (1, "")
    assert "up to w its weights are far larger than what is stored" in done.err
    assert not (tmp_path / "new.safetensors").exists()


@pytest.mark.parametrize("archive", [True, False])
def test_a_storage_that_claims_more_than_is_there(convert, tmp_path, archive):
    torch.save({"w": torch.ones(7)}, tmp_path / "a.pth", _use_new_zipfile_serialization=archive)
    data = (tmp_path / "a.pth").read_bytes()
    if archive:
        with zipfile.ZipFile(tmp_path / "a.pth") as old, zipfile.ZipFile(tmp_path / "b.pth", "w") as new:
            for name in old.namelist():
                content = old.read(name)
                new.writestr(
                    name, content.replace(b"K\x07", b"J\xff\xff\xff\x7f") if name.endswith(".pkl") else content
                )
    else:
        (tmp_path / "b.pth").write_bytes(data.replace(b"K\x07", b"J\xff\xff\xff\x7f"))
    done = convert(tmp_path / "b.pth", tmp_path / "new.pth")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"cannot read {tmp_path}/b.pth: ")
    assert not (tmp_path / "new.pth").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no checkpoint at all", b"\x80\x02.", bytes(range(256)) * 8])
def test_what_is_no_file_of_torch(convert, tmp_path, content):
    (tmp_path / "a.pth").write_bytes(content)
    done = convert(tmp_path / "a.pth", tmp_path / "new.pth")
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith((f"cannot read {tmp_path}/a.pth: ", f"cannot convert {tmp_path}/a.pth: "))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pth"]


def test_a_compressed_archive_is_refused_before_it_is_unpacked(convert, tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"\0" * 10**7)
    done = convert(tmp_path / "bomb.pth", tmp_path / "new.pth")
    assert (done.status, done.err) == (
        1,
        f"cannot read {tmp_path}/bomb.pth: not a checkpoint: its records are compressed\n",
    )


@pytest.mark.parametrize(
    ("new", "options", "message"),
    [
        ("new.pt", [], "the new file's name ends in .pth, for a checkpoint, or in .safetensors"),
        ("folder.pth", [], "is a folder"),
        ("epoch-00002.pth", ["--overwrite"], "is the old file: give the new one another name"),
        ("there.pth", [], "there.pth exists\n    hint:     --overwrite replaces it"),
        ("new.pth", ["--epoch", "-1"], "Invalid value for '--epoch'"),
        ("new.pth", ["--weights-only", "--step", "3"], "starts at the beginning: leave out --epoch and --step"),
    ],
)
def test_what_cannot_be_asked_for(saved, convert, tmp_path, new, options, message):
    (tmp_path / "folder.pth").mkdir()
    (tmp_path / "there.pth").write_bytes(b"kept")
    before = saved.read_bytes()
    done = convert(saved, tmp_path / new, *options)
    assert (done.status, done.out) == (2, "")
    assert message in done.err
    assert (saved.read_bytes(), (tmp_path / "there.pth").read_bytes()) == (before, b"kept")
    assert not (tmp_path / "new.pth").exists()


def test_an_old_file_that_is_not_there(convert, tmp_path):
    done = convert(tmp_path / "gone.pth", tmp_path / "new.pth")
    assert (done.status, done.err) == (2, f"{tmp_path}/gone.pth: there is no such file\n")
    done = convert(tmp_path, tmp_path / "new.pth")
    assert (done.status, done.err) == (2, f"{tmp_path}: a folder, not a file\n")


def test_names_that_no_file_can_have(saved, convert, tmp_path):
    long = "x" * 300 + ".pth"
    for old, new in ((saved, tmp_path / long), (tmp_path / long, tmp_path / "new.pth")):
        done = convert(old, new)
        assert (done.status, done.err) == (1, f"cannot convert {old} to {new}: File name too long\n")
    done = convert(saved, saved / "new.pth")
    assert (done.status, done.err.startswith(f"could not write {saved}/new.pth: ")) == (1, True)


def test_a_pipe_is_not_replaced(saved, convert, tmp_path):
    os.mkfifo(tmp_path / "pipe.pth")
    done = convert(saved, tmp_path / "pipe.pth", "--overwrite")
    assert (done.status, done.err) == (2, f"{tmp_path}/pipe.pth is no file\n")
    assert (tmp_path / "pipe.pth").is_fifo()


def test_overwrite_replaces(saved, convert, tmp_path):
    (tmp_path / "new.pth").write_bytes(b"earlier")
    assert convert(saved, tmp_path / "new.pth", "--overwrite").status == 0
    assert torch.load(tmp_path / "new.pth", weights_only=True)["epoch"] == 2


def test_a_failed_write_leaves_what_was_there(saved, convert, tmp_path, monkeypatch):
    (tmp_path / "new.pth").write_bytes(b"earlier")

    def fails(state, file):
        file.write(b"half")
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(torch, "save", fails)
    done = convert(saved, tmp_path / "new.pth", "--overwrite")
    assert (done.status, done.err) == (1, f"could not write {tmp_path}/new.pth: the disk is full\n")
    assert (tmp_path / "new.pth").read_bytes() == b"earlier"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-00002.pth", "new.pth"]
