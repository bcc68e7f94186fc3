"""The command in processes of its own, with everything on a real S3 server: killed, cut off, resumed."""

from __future__ import annotations

import io
import os
import re
import signal
import threading
import time

import pytest
import torch
import yaml
from safetensors.torch import load, load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from scepter_core import run
from scepter_core.cli import main

from .conftest import KEY, SECRET

torch.set_num_threads(1)  # as in the processes: sums are the same to the bit
REFERENCES = {"S3_KEY": KEY, "S3_SECRET": SECRET}


@pytest.fixture
def job(s3, everything, tmp_path):
    """Writes cfg.yaml of a run of steps of about 30 ms, 16 an epoch; keyword arguments are keys of SOLVER."""
    server, bucket = s3

    def write(**keys):
        section = {**server.section, "KEY": "${env:S3_KEY}", "SECRET": "${env:S3_SECRET}", "RETRY_TIMES": 1}
        section["CONFIG_KWARGS"] = {"retries": {"total_max_attempts": 1}}  # the driver's own, which take their time
        config = everything(f"{bucket}/run", **{"FILE_SYSTEM": section, "MAX_EPOCHS": 3, **keys})
        config["SOLVER"]["TRAIN_DATA"] = {"NAME": "SlowRows", "SIZE": 64, "BATCH_SIZE": 4}
        (tmp_path / "cfg.yaml").write_text(yaml.safe_dump(config))
        return config

    return write


def _wait_for(server, path, process, seconds=240):
    deadline = time.monotonic() + seconds
    while not server.files.exists(path):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _load(server, path):
    return torch.load(io.BytesIO(server.files.cat(path)), weights_only=True)


def _equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def _scalars(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_a_killed_run_goes_on_to_the_same_bits(s3, job, scepter, tmp_path, monkeypatch, capsys):
    server, bucket = s3
    config = job()
    killed = scepter("run", "cfg.yaml", **REFERENCES)
    _wait_for(server, f"{bucket}/run/checkpoints/ldm_step-20.pth", killed)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    process = scepter("run", "cfg.yaml", "--resume", "auto", **REFERENCES)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    assert f"resumed from {bucket}/run/checkpoints/ldm_step-" in out
    config["SOLVER"].update(WORK_DIR=str(tmp_path / "local"), FILE_SYSTEM=None)
    run(config)

    last = _load(server, f"{bucket}/run/checkpoints/ldm_step-last.pth")
    local = torch.load(tmp_path / "local" / "checkpoints" / "ldm_step-last.pth", weights_only=True)
    assert _equal(last["model"], local["model"])
    assert last["metrics"]["epoch_outputs"] == local["metrics"]["epoch_outputs"]
    names = sorted(path.rpartition("/")[2] for path in server.files.ls(f"{bucket}/run/checkpoints"))
    assert names == sorted(os.listdir(tmp_path / "local" / "checkpoints"))
    server.files.get(f"{bucket}/run/tensorboard/", str(tmp_path / "events"), recursive=True)
    assert _scalars(tmp_path / "events") == _scalars(tmp_path / "local" / "tensorboard")
    rows = server.files.cat(f"{bucket}/run/metrics.jsonl").decode().splitlines()
    assert len(rows) == len((tmp_path / "local" / "metrics.jsonl").read_text().splitlines())
    for name in ("48", "3"):
        weights = load(server.files.cat(f"{bucket}/run/safetensors/ldm_step-{name}.safetensors"))
        assert _equal(weights, load_file(tmp_path / "local" / "safetensors" / f"ldm_step-{name}.safetensors"))

    for name, value in (("ENDPOINT_URL", server.endpoint), ("ACCESS_KEY_ID", KEY), ("SECRET_ACCESS_KEY", SECRET)):
        monkeypatch.setenv(f"AWS_{name}", value)
    capsys.readouterr()
    assert main(["checkpoints", f"{bucket}/run"]) == 0
    out = capsys.readouterr().out
    assert out.count("whole") + out.count("newest") == len(names)
    written = b"".join(server.files.cat(path) for path in server.files.find(f"{bucket}/run"))
    assert SECRET.encode() not in written
    assert b"${env:S3_SECRET}" in server.files.cat(f"{bucket}/run/config.yaml")


def test_a_server_that_comes_back_costs_a_warning(s3, job, scepter):
    server, bucket = s3
    job(MAX_EPOCHS=3)
    process = scepter("run", "cfg.yaml", "SOLVER.FILE_SYSTEM.RETRY_TIMES=4", **REFERENCES)
    _wait_for(server, f"{bucket}/run/checkpoints/ldm_step-8.pth", process)
    server.stop()
    threading.Timer(2.0, server.start).start()
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    assert len([name for name in server.files.ls(f"{bucket}/run/checkpoints") if "ldm_step" in name]) == 26
    assert len(server.files.cat(f"{bucket}/run/metrics.jsonl").splitlines()) == 48 + 2 * 3


def test_a_server_that_stays_away_ends_the_run_with_what_was_saved(s3, job, scepter, tmp_path):
    server, bucket = s3
    job(MAX_EPOCHS=50)
    (tmp_path / "tmp").mkdir()
    process = scepter("run", "cfg.yaml", TMPDIR=str(tmp_path / "tmp"), **REFERENCES)
    _wait_for(server, f"{bucket}/run/checkpoints/ldm_step-8.pth", process)
    server.stop()
    try:
        out, err = process.communicate(timeout=300)
    finally:
        server.start()
    assert process.returncode == 1
    assert "trying again in 1 s" in out
    assert re.match(rf"could not write the (checkpoint|weights) {bucket}/run/(checkpoints|safetensors)/ldm_step-", err)
    assert "given up after 2 attempts in" in err or "given up at once, as others had been just before" in err
    assert "Traceback" not in out + err
    assert SECRET not in out + err
    checkpoints = server.files.ls(f"{bucket}/run/checkpoints")
    assert len(checkpoints) >= 4
    for path in checkpoints:
        assert _load(server, path)["format"] == 1
    (kept,) = (tmp_path / "tmp").glob("scepter-*/*-std_log.txt")  # with the warnings, which came too late
    assert len(kept.read_text().splitlines()) > len(server.files.cat(f"{bucket}/run/std_log.txt").splitlines())


def test_a_store_out_of_reach_is_said_before_any_work(s3, job, scepter):
    server, _ = s3
    job()
    server.stop()
    try:
        process = scepter("run", "cfg.yaml", "SOLVER.FILE_SYSTEM.RETRY_TIMES=0", **REFERENCES)
        out, err = process.communicate(timeout=300)
    finally:
        server.start()
    assert (process.returncode, out) == (2, "")
    assert err.startswith("cfg.yaml:")
    assert ": SOLVER.WORK_DIR: cannot be written to: Could not connect" in err
