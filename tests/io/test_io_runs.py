"""Whole runs whose files are not on the local disk, compared with the same runs on it."""

from __future__ import annotations

import io
import json
import logging
import uuid
import zipfile
from pathlib import Path

import fsspec
import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from scepter_core import ConfigError, RunError, read_checkpoint, run
from scepter_core.cli import main
from scepter_core.io import RunFileSystem
from scepter_core.runner import fast_dev_run


def _same(one, other):
    """Whether two states are equal to the bit, whatever the nesting."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other) and one.dtype == other.dtype
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other or one != one


def _state(path, files=None):
    state = read_checkpoint(path, files)
    return {key: state[key] for key in ("model", "optimizer", "total_iter", "epoch", "position", "metrics", "rng")}


def _rows(text):
    return [{**json.loads(line), "timing": None} for line in text.splitlines()]


def _scalars(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def _fetch(files, folder, to):
    """All files of a folder of a run, on the local disk."""
    to.mkdir(parents=True, exist_ok=True)
    for name in files.listdir(folder):
        if files.isfile(files.join(folder, name)):
            with files.open(files.join(folder, name), "rb") as file:
                (to / name).write_bytes(file.read())
    return to


@pytest.fixture(params=["memory", "ftp"])
def remote(request):
    if request.param == "memory":
        return request.getfixturevalue("memory")
    return f"ftp://{request.getfixturevalue('ftp')[0]}/{uuid.uuid4().hex}"


def test_a_run_and_its_resume_are_those_of_the_local_disk(everything, remote, tmp_path):
    local = tmp_path / "local"
    run(everything(local))
    run(everything(remote, MAX_EPOCHS=1))
    files = RunFileSystem()
    folder = files.absolute(remote)
    run(everything(remote), resume="auto")
    checkpoints = sorted(path.name for path in (local / "checkpoints").iterdir())
    assert files.listdir(f"{folder}/checkpoints") == checkpoints
    for name in checkpoints:
        assert _same(_state(local / "checkpoints" / name), _state(f"{folder}/checkpoints/{name}", files))
    with files.open(f"{folder}/metrics.jsonl", "r") as file:
        assert _rows(file.read()) == _rows((local / "metrics.jsonl").read_text())
    assert _scalars(_fetch(files, f"{folder}/tensorboard", tmp_path / "events")) == _scalars(local / "tensorboard")
    weights = _fetch(files, f"{folder}/safetensors", tmp_path / "weights")
    (weights / "ldm_step-4.safetensors").unlink()  # of the end of the first half
    assert sorted(p.name for p in weights.iterdir()) == sorted(p.name for p in (local / "safetensors").iterdir())
    for path in weights.iterdir():
        assert _same(load_file(path), load_file(local / "safetensors" / path.name))
    collected = _fetch(files, f"{folder}/eval", tmp_path / "eval")
    assert _same(load_file(collected / "2.safetensors"), load_file(local / "eval" / "2.safetensors"))
    with files.open(f"{folder}/std_log.txt", "r") as file:
        lines = file.read()
    assert f"resumed from {folder}/checkpoints/ldm_step-last.pth (epoch 1, step 4)" in lines
    assert "eval epoch 2/2 done" in lines
    with files.open(f"{folder}/config.yaml", "r") as file:
        config = file.read()
    assert "pass-of-ann" not in config + lines
    assert ("***@" in config) == remote.startswith("ftp")


def test_a_new_run_where_an_earlier_one_was(everything, memory):
    files = RunFileSystem()
    run(everything(memory))
    with pytest.raises(ConfigError, match=r"memory://\S+ holds the checkpoints of an earlier run"):
        run(everything(memory))
    with pytest.raises(ConfigError, match="go on from what overwriting removes"):
        run(everything(memory, RESUME_FROM=f"{memory}/checkpoints/ldm_step-4.pth"), overwrite=True)
    assert "ldm_step-8.pth" in files.listdir(f"{memory}/checkpoints")
    run(everything(memory, MAX_EPOCHS=1), overwrite=True)
    assert files.listdir(f"{memory}/checkpoints") == [f"ldm_step-{n}.pth" for n in ("2", "4", "best", "last")]
    assert files.listdir(f"{memory}/eval") == ["1.safetensors"]


def test_each_path_goes_where_its_protocol_says(everything, memory, tmp_path):
    """WORK_DIR here, LOG_DIR there, RESUME_FROM from a third place; references to a URL work."""
    run(everything(f"{memory}/first", MAX_EPOCHS=1))
    config = everything(
        tmp_path / "second", RESUME_FROM="${META.FROM}/checkpoints/ldm_step-last.pth"
    )
    config["META"] = {"FROM": f"{memory}/first"}
    config["SOLVER"]["TRAIN_HOOKS"][2]["LOG_DIR"] = "${META.FROM}/events-of-second"
    solver = run(config)
    assert (solver.train_steps, solver.work_dir) == (8, str(tmp_path / "second"))
    events = _fetch(RunFileSystem(), f"{memory}/first/events-of-second", tmp_path / "events")
    assert [step for step, _ in _scalars(events)["train/iter/loss"]] == [5, 6, 7, 8]
    assert not (tmp_path / "second" / "tensorboard").exists()


def test_eval_takes_weights_from_a_url(everything, memory, caplog):
    run(everything(memory))
    trained = read_checkpoint(f"{memory}/checkpoints/ldm_step-best.pth")
    for wanted in ("best", f"{memory}/checkpoints/ldm_step-best.pth"):
        solver = run(everything(memory), mode="eval", resume=wanted)
        assert _same(dict(solver.model.state_dict()), dict(trained["model"]))


def test_a_damaged_checkpoint_is_passed_over(everything, memory):
    store = fsspec.filesystem("memory")
    run(everything(memory))
    for name, damage in {
        "last": lambda data: data[: len(data) // 2],
        "best": lambda data: b"",
        "8": _flipped,
    }.items():
        path = f"{memory}/checkpoints/ldm_step-{name}.pth"
        store.pipe(path, damage(store.cat(path)))
    logger, lines = logging.Logger("run"), []
    logger.addHandler(handler := logging.Handler())
    handler.emit = lambda record: lines.append(record.getMessage())
    solver = run(everything(memory, MAX_EPOCHS=3), resume="auto", logger=logger)
    assert solver.train_steps == 12
    passed = [line.partition(": ") for line in lines if line.startswith("passing over")]
    assert sorted(path.rpartition("-")[2] for path, _, _ in passed) == ["8.pth", "best.pth", "last.pth"]
    assert any(f"resumed from {memory}/checkpoints/ldm_step-6.pth" in line for line in lines)


def _flipped(data):
    """One bit of a tensor is wrong: only its checksum tells."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        record = next(info for info in archive.infolist() if info.filename.endswith("data/0"))
    place = data.index(record.filename.encode(), record.header_offset) + 200  # behind the name and its padding
    flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    with zipfile.ZipFile(io.BytesIO(flipped)) as archive:
        assert archive.testzip() == record.filename
    return flipped


def test_keep_last_removes_older_files(everything, remote):
    config = everything(remote, MAX_EPOCHS=1)
    config["SOLVER"]["TRAIN_HOOKS"][-1].update(INTERVAL_STEPS=1, KEEP_LAST=2)
    solver = run(config)
    folder = solver.file_system.join(solver.work_dir, "checkpoints")
    assert solver.file_system.listdir(folder) == [f"ldm_step-{n}.pth" for n in ("3", "4", "best", "last")]


def test_a_path_that_is_none_is_named(everything, memory):
    with pytest.raises(RunError, match=r"cannot read the checkpoint memory://\S+/none\.pth: there is no such file"):
        run(everything(memory, RESUME_FROM=f"{memory}/none.pth"))
    with pytest.raises(ConfigError, match="fsspec knows no protocol s4"):
        run(everything(memory), resume="s4://b/x.pth")


def test_a_trial_run_leaves_nothing_in_the_store(everything, memory):
    fast_dev_run(everything(memory))
    assert not fsspec.filesystem("memory").exists(memory)


def test_the_commands_take_urls(everything, memory, capsys, tmp_path):
    run(everything(memory))
    capsys.readouterr()
    assert main(["checkpoints", memory, "--json"]) == 0
    infos = json.loads(capsys.readouterr().out)
    assert {info["file"]: info["step"] for info in infos}["ldm_step-6.pth"] == 6
    assert all(info["damage"] is None and info["size"] > 20_000 for info in infos)
    assert main(["checkpoints", f"{memory}/none"]) == 2
    weights = f"{memory}/converted.safetensors"
    assert main(["convert", f"{memory}/checkpoints/ldm_step-8.pth", weights]) == 0
    assert main(["convert", f"{memory}/checkpoints/ldm_step-8.pth", weights]) == 2
    assert main(["convert", f"{memory}/none.pth", str(tmp_path / "x.pth")]) == 2
    with RunFileSystem().fetched(weights) as local:
        assert _same(load_file(local), dict(read_checkpoint(f"{memory}/checkpoints/ldm_step-8.pth")["model"]))


def test_a_store_that_takes_nothing_is_said_at_once(everything, s3):
    server, _ = s3
    with pytest.raises(ConfigError, match=r"SOLVER\.WORK_DIR: cannot be written to: .*(?i:bucket does not exist)"):
        run(everything("s3://no-such-bucket/run", FILE_SYSTEM=server.section))


def test_file_urls_are_local_paths(everything, tmp_path):
    solver = run(everything(f"file://{tmp_path}/run"))
    assert solver.work_dir == str(tmp_path / "run")
    assert (Path(solver.work_dir) / "checkpoints" / "ldm_step-last.pth").is_file()
