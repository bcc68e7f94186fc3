"""Checkpoints and weights that are damaged, foreign or hostile, through the command line: told, and nothing of them run."""

from __future__ import annotations

import json
import pickle
import random
import resource
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scepter_core.cli import main

TASKS = Path(__file__).parents[1] / "tasks.py"
NET = {"NAME": "PlainDropNet"}


def configuration(folder: Path, *, model=None, optimizer=None, **solver) -> str:
    """Writes the configuration of a run of two steps an epoch in `folder`; returns its path."""
    root = {
        "PLUGINS": [str(TASKS)],
        "ENV": {"DEVICE": "cpu"},
        "SOLVER": {
            "NAME": "TrainValSolver",
            "WORK_DIR": str(folder / "run"),
            "MAX_EPOCHS": 2,
            "TRAIN_DATA": {"NAME": "Rows", "SIZE": 8, "BATCH_SIZE": 4},
            "MODEL": model or NET,
            "OPTIMIZER": optimizer or {"NAME": "AdamW", "LEARNING_RATE": 0.01},
            "TRAIN_HOOKS": [{"NAME": "BackwardHook"}, {"NAME": "CheckpointHook", "ASYNC": False}],
            **solver,
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "cfg.yaml"
    path.write_text(json.dumps(root), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A whole checkpoint of the first of two epochs; beside it, as `-4`, that of the end."""
    folder = tmp_path_factory.mktemp("whole")
    assert main(["run", configuration(folder), "--quiet"]) == 0
    return folder / "run/checkpoints/ldm_step-2.pth"


class Evil:
    """Unpickled freely, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def rezipped(source: Path, target: Path, change=lambda name, data: data, compression=zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))


def with_pickle(data: bytes):
    return lambda name, old: data if name.endswith("data.pkl") else old


def buffer_of(size: int) -> bytes:
    """A pickle of {'format': 1, 'x': bytearray(size)}, as torch's restricted unpickler takes it."""
    number = b"\x8a\x08" + struct.pack("<q", size)
    return b"\x80\x02}(X\x06\x00\x00\x00formatK\x01X\x01\x00\x00\x00xcbuiltins\nbytearray\n" + number + b"\x85Ru."


def make(kind: str, whole: Path, path: Path, marker: Path) -> None:
    """Write to `path` a file that is wrong in the way `kind`; `marker` is what a hostile one would make."""
    data = whole.read_bytes()
    if kind == "random bytes":
        path.write_bytes(random.Random(0).randbytes(3000))
    elif kind == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "bit flipped":
        path.write_bytes(data.replace(b"TrainValSolver", b"TrainVanSolver"))
    elif kind == "a record that is a folder":  # by its attributes: zipfile reads it, torch does not
        at = data.rindex(b"PK\x01\x02", 0, data.rindex(b"/data/2")) + 38
        path.write_bytes(data[:at] + bytes([data[at] | 0x10]) + data[at + 1 :])
    elif kind == "encrypted":  # by a flag of its first record: zipfile then asks for a password
        at = data.index(b"PK\x01\x02") + 8
        path.write_bytes(data[:at] + bytes([data[at] | 1]) + data[at + 1 :])
    elif kind == "zip bomb":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a/data.pkl", "w") as record:
            for _ in range(64):
                record.write(bytes(2**20))
    elif kind == "one record many times":  # stored, each entry of the directory at the same place
        overlapping(path)
    elif kind == "memory bomb":
        rezipped(whole, path, with_pickle(buffer_of(2**33)))
    elif kind == "storage larger than its record":
        rezipped(whole, path, lambda name, old: old[: len(old) // 2] if "/data/" in name else old)
    elif kind == "plain pickle":
        path.write_bytes(pickle.dumps(Evil(marker)))
    elif kind == "hostile":
        torch.save({**torch.load(whole, weights_only=True), "hooks": Evil(marker)}, path)
    elif kind == "hostile record":
        rezipped(whole, path, with_pickle(pickle.dumps(Evil(marker), 2)))
    elif kind == "numbers that are none":
        state = torch.load(whole, weights_only=True)
        state["total_iter"]["train"] = "two"
        torch.save(state, path)
    elif kind == "streams that are none":
        state = torch.load(whole, weights_only=True)
        state["rng"]["rank0"]["torch"] = torch.zeros(3, dtype=torch.uint8)
        torch.save(state, path)


def overlapping(path: Path) -> None:
    """Write an archive of ten megabytes whose directory has them a thousand times."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", bytes(10 * 2**20))
    data = path.read_bytes()
    directory, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    entry, tail = data[directory:end], bytearray(data[end:])
    tail[8:12] = struct.pack("<HH", 1000, 1000)
    tail[12:16] = struct.pack("<I", 1000 * len(entry))
    path.write_bytes(data[:directory] + 1000 * entry + bytes(tail))


KINDS = [
    "random bytes", "truncated", "bit flipped", "encrypted", "a record that is a folder", "zip bomb", "one record many times", "memory bomb",
    "storage larger than its record", "plain pickle", "hostile", "hostile record", "numbers that are none",
]  # fmt: skip


@pytest.mark.parametrize("kind", [*KINDS, "streams that are none"])
def test_a_path_to_it_ends_the_run_before_its_first_step(whole, tmp_path, capsys, kind):
    path, marker = tmp_path / "bad.pth", tmp_path / "executed"
    make(kind, whole, path, marker)
    status = main(["run", configuration(tmp_path), "--resume", str(path)])
    said = capsys.readouterr()
    assert status == 1
    assert str(path) in said.err
    assert "Traceback" not in said.err + said.out
    assert len(said.err) < 600
    assert "weights_only" not in said.err  # torch's advice to load it all the same
    assert not marker.exists()
    assert not (tmp_path / "run/checkpoints").exists()


def test_a_folder_and_a_file_of_scepters_are_told_for_what_they_are(tmp_path, capsys):
    torch.save({"state_dict": {"w": torch.zeros(1)}, "epoch": 1}, tmp_path / "epoch-00001.pth")
    cases = (tmp_path, "a folder: name one of its .pth files"), (tmp_path / "epoch-00001.pth", "scepter convert makes one of SCEPTER's")
    for path, said in cases:
        assert main(["run", configuration(tmp_path), "--resume", str(path)]) == 1
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_auto_passes_over_it(whole, tmp_path, capsys, kind):
    config, folder, marker = configuration(tmp_path), tmp_path / "run/checkpoints", tmp_path / "executed"
    folder.mkdir(parents=True)
    make(kind, whole, folder / "ldm_step-9.pth", marker)
    assert main(["run", config, "SOLVER.MAX_EPOCHS=1", "--resume", "auto"]) == 0
    said = capsys.readouterr().out
    assert f"passing over the checkpoint {folder / 'ldm_step-9.pth'}: " in said
    assert "a fresh start" in said
    shutil.copy(whole, folder)
    assert main(["run", config, "--resume", "auto"]) == 0
    assert f"resumed from {folder / 'ldm_step-2.pth'} (epoch 1, step 2)" in capsys.readouterr().out
    assert not marker.exists()
    ends = [torch.load(at, weights_only=True)["model"] for at in (folder / "ldm_step-4.pth", whole.with_name("ldm_step-4.pth"))]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[1])


@pytest.mark.parametrize("kind", ["zip bomb", "one record many times", "memory bomb"])
def test_a_bomb_takes_no_memory_and_no_time(whole, tmp_path, kind):
    """The three would take 64 MiB (and might as well take 64 GiB), ten seconds of checksums, and eight gigabytes."""
    path = tmp_path / "bomb.pth"
    make(kind, whole, path, tmp_path / "executed")
    program = (
        "import resource, sys, time, torch\n"
        "from scepter_core.checkpoints import damage_of, read_checkpoint\n"
        "before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()\n"
        "assert damage_of(sys.argv[1])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, time.monotonic() - began)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    grown, seconds = map(float, done.stdout.split())
    unit = 1 if sys.platform == "darwin" else 1024
    assert grown * unit < 32 * 2**20
    assert seconds < 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": {"NAME": "GradProbe"}}, "the checkpoint is of another model; it lacks: w; has besides: net.0.bias"),
        ({"model": {"NAME": "NormDropNet"}}, "the checkpoint is of another model"),
        ({"optimizer": {"NAME": "SGD", "LEARNING_RATE": 1.0}}, "the checkpoint is of another kind of optimizer"),
    ],
)
def test_a_whole_checkpoint_of_another_run(whole, tmp_path, capsys, changed, said):
    data = {"NAME": "Floats", "VALUES": [1]} if changed.get("model", NET)["NAME"] == "GradProbe" else {"NAME": "Rows"}
    config = configuration(tmp_path, **changed, TRAIN_DATA=data)
    assert main(["run", config, "--resume", str(whole)]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert str(whole) in error
    assert "Traceback" not in error


@pytest.mark.parametrize(("name", "length"), [("exp_avg", 2), ("step", 0)])
def test_optimizer_state_of_another_length_is_refused(whole, tmp_path, capsys, name, length):
    """A fused step would write beyond its end."""
    state = torch.load(whole, weights_only=True)
    state["optimizer"]["state"][0][name] = torch.zeros(length)
    path = tmp_path / "short.pth"
    torch.save(state, path)
    assert main(["run", configuration(tmp_path), "--resume", str(path)]) == 1
    error = capsys.readouterr().err
    assert f"{path}: the checkpoint's optimizer has {name} of shape ({length},) for parameter 0, expected" in error


class _Quiet:
    """The state and the weights in which a resumed run ends, without its output."""

    def __init__(self, whole: Path, folder: Path) -> None:
        self.data = whole.read_bytes()
        self.config = configuration(folder)
        self.end = torch.load(whole.with_name("ldm_step-4.pth"), weights_only=True)["model"]
        self.path, self.work_dir = folder / "fuzzed.pth", folder / "run"

    def resumes_or_refuses(self, data: bytes, capsys) -> str:
        self.path.write_bytes(data)
        shutil.rmtree(self.work_dir, ignore_errors=True)
        status = main(["run", self.config, "--resume", str(self.path)])
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        if status:
            assert (status, str(self.path) in said.err) == (1, True)
            return "refused"
        end = torch.load(self.work_dir / "checkpoints/ldm_step-4.pth", weights_only=True)["model"]
        assert all(torch.equal(end[name], self.end[name]) for name in end)
        return "the same"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_flipped_bits_and_cut_ends_are_refused_or_harmless(whole, tmp_path, capsys, data):
    quiet = _Quiet(whole, tmp_path)
    damaged = bytearray(quiet.data)
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), max_size=3)):
        damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.one_of(st.just(len(damaged)), st.integers(0, len(damaged) - 1)))
    outcome = quiet.resumes_or_refuses(bytes(damaged[:cut]), capsys)
    assert outcome == "refused" or cut == len(damaged)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(places=st.lists(st.integers(0, 10**9), min_size=1, max_size=2), bit=st.integers(0, 7))
@example(places=[0], bit=0)
def test_a_damaged_directory_of_records_is_told(whole, tmp_path, places, bit):
    """Where the structure of the file is, and most of what is not is padding: its head and its end."""
    from scepter_core import RunError, read_checkpoint

    data = bytearray(whole.read_bytes())
    directory = data.index(b"PK\x01\x02")
    for place in places:
        data[directory + place % (len(data) - directory)] ^= 1 << bit
    path = tmp_path / "fuzzed.pth"
    path.write_bytes(data)
    try:
        state = read_checkpoint(str(path))
    except RunError as error:
        assert str(path) in str(error)
    else:
        assert torch.equal(state["model"]["net.0.weight"], torch.load(whole, weights_only=True)["model"]["net.0.weight"])


def test_memory_of_this_module_stayed_small():
    """None of the bombs went off in this process."""
    unit = 1 if sys.platform == "darwin" else 1024
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit < 4 * 2**30
