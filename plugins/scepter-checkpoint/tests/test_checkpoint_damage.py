"""Files that are damaged, foreign or hostile, and writers that die."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch

from scepter_core import RunError, read_checkpoint


class Evil:
    """Unpickled freely, it writes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def rezipped(source, target, change=lambda name, data: data, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))


@pytest.fixture
def broken(probe, tmp_path):
    """broken(kind) → path of a checkpoint file that is wrong in that way, and the file that a hostile one would make."""
    job = probe(folder="source", epochs=1, model={"BALLAST": 2000})
    job.run()
    whole, marker = job.path("p-3"), tmp_path / "executed"

    def make(kind):
        path = tmp_path / f"{kind.replace(' ', '-')}.pth"
        data = bytearray(whole.read_bytes())
        if kind == "missing":
            path = tmp_path / "no" / "such.pth"
        elif kind == "folder":
            path.mkdir()
        elif kind == "empty":
            path.touch()
        elif kind == "random":
            path.write_bytes(random.Random(0).randbytes(5000))
        elif kind == "truncated":
            path.write_bytes(data[: len(data) // 2])
        elif kind == "almost whole":
            path.write_bytes(data[:-1])
        elif kind == "zeroed tail":
            path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
        elif kind == "bit flipped":
            data[len(data) // 2] ^= 1  # in the ballast, whose value nobody else would notice
            path.write_bytes(data)
        elif kind == "compressed":
            rezipped(whole, path, compression=zipfile.ZIP_DEFLATED)
        elif kind == "foreign zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("hello.txt", "hello")
        elif kind == "foreign tensor file":
            torch.save({"model": {"w": torch.zeros(())}}, path)
        elif kind == "foreign list":
            torch.save([1, 2, 3], path)
        elif kind == "other format":
            torch.save({**torch.load(whole, weights_only=True), "format": 99}, path)
        elif kind == "half of the keys":
            torch.save({"format": 1, "model": torch.load(whole, weights_only=True)["model"]}, path)
        elif kind == "plain pickle":
            path.write_bytes(pickle.dumps(Evil(marker)))
        elif kind == "hostile":
            torch.save(Evil(marker), path)
        elif kind == "hostile inside":
            torch.save({**torch.load(whole, weights_only=True), "config": Evil(marker)}, path)
        elif kind == "hostile record":
            rezipped(
                whole,
                path,
                lambda name, data: pickle.dumps(Evil(marker), 2) if name.endswith("data.pkl") else data,
            )
        return path, marker

    return make


KINDS = [
    "missing", "folder", "empty", "random", "truncated", "almost whole", "zeroed tail", "bit flipped", "compressed",
    "foreign zip", "foreign tensor file", "foreign list", "other format", "half of the keys",
    "plain pickle", "hostile", "hostile inside", "hostile record",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_c18_resume_from_a_file_that_is_none_ends_before_the_first_step(probe, broken, kind):
    path, marker = broken(kind)
    job = probe(
        model={"BALLAST": 2000}, hooks=[{"NAME": "Failing", "AT": 1}]
    )  # a step would raise ValueError
    with pytest.raises(RunError) as caught:
        job.run(f"SOLVER.RESUME_FROM={path}")
    assert str(path) in str(caught.value)
    assert caught.value.exit_status == 1
    assert "Traceback" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert job.names == set()
    assert not marker.exists(), "nothing of the file was executed"


@pytest.mark.parametrize("kind", ["missing", "random", "empty"])
def test_c18_exit_status_and_message_of_a_process(probe, broken, kind):
    path, _ = broken(kind)
    job = probe()
    done = job.process(f"SOLVER.RESUME_FROM={path}")
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr
    assert job.names == set()


def test_auto_passes_over_damaged_files_with_a_warning_each(probe, broken):
    job = probe(epochs=1)
    job.run()
    damaged = [kind for kind in KINDS if kind not in ("missing", "folder", "other format")]
    for number, kind in enumerate(damaged):
        path, marker = broken(kind)
        shutil.copy(path, job.path(f"p-{100 + number}"))
    solver = job.run("SOLVER.RESUME_FROM=auto", "SOLVER.MAX_EPOCHS=2")
    assert solver.total_updates == 6
    assert str(job.path("p-3")) in job.log.text
    warnings = [line for line in job.log.of("WARNING") if "passing over" in line]
    assert len(warnings) == len(damaged)
    for number in range(len(damaged)):
        assert sum(str(job.path(f"p-{100 + number}")) in line for line in warnings) == 1
    assert not marker.exists()


def test_auto_does_not_go_back_behind_a_whole_checkpoint_of_another_format(probe):
    job = probe(epochs=1)
    job.run()
    state = job.read("p-3")
    state["total_iter"]["train"] = 99
    torch.save({**state, "format": 99}, job.path("p-99"))
    with pytest.raises(RunError) as caught:
        job.run("SOLVER.RESUME_FROM=auto", "SOLVER.MAX_EPOCHS=2")
    assert str(job.path("p-99")) in str(caught.value)
    assert "format 99" in str(caught.value)


def test_a_flipped_bit_anywhere_is_found_or_harmless(probe, tmp_path, differences):
    job = probe(epochs=1)
    job.run()
    state, data = job.read("p-3"), job.path("p-3").read_bytes()
    chance, found = random.Random(0), 0
    path = tmp_path / "flipped.pth"
    for _ in range(80):
        flipped = bytearray(data)
        flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        try:
            read = read_checkpoint(str(path))
        except RunError as error:
            assert str(path) in str(error)
            found += 1
        else:
            assert differences(read, state) == []
    assert found > 40


# --- writers that die ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("background", [True, False])
def test_c15_killed_while_writing(probe, recorder, background):
    job = probe(epochs=3, ASYNC=background)
    hook = '{"NAME": "DieInWrite", "AT": 3}'
    done = job.process(
        f"SOLVER.TRAIN_HOOKS=[{{NAME: Step}}, {hook}, {{NAME: CheckpointHook, SAVE_NAME_PREFIX: p}}]"
    )
    assert done.returncode == 9, done.stderr
    whole = {name for name in job.names if not name.startswith(".")}
    assert whole == {"p-3", "p-6"}
    (left,) = job.names - whole
    assert left.endswith(".tmp")
    assert [job.weight(name) for name in ("p-3", "p-6")] == [-3.0, -6.0]

    solver = job.run("SOLVER.RESUME_FROM=auto")
    assert recorder(solver).steps[0][:2] == (3, 7)
    assert job.weight("p-9") == -9.0
    assert job.names == {"p-3", "p-6", "p-9"}, "and what was left half written is gone"


@pytest.mark.parametrize("background", [True, False])
def test_c16_disk_full(probe, background):
    job = probe(epochs=3, KEEP_LAST=1, ASYNC=background, model={"BALLAST": 262144})
    limit = f"{{NAME: FileLimit, WHOLE: '{job.path('p-3')}'}}"
    saving = f"{{NAME: CheckpointHook, SAVE_NAME_PREFIX: p, KEEP_LAST: 1, ASYNC: {background}}}"
    done = job.process(f"SOLVER.TRAIN_HOOKS=[{{NAME: Step}}, {limit}, {saving}]")
    assert done.returncode == 1, done.stderr
    assert str(job.path("p-6")) in done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert job.names == {"p-3"}
    assert job.weight("p-3") == -3.0
    job.run("SOLVER.RESUME_FROM=auto")
    assert job.weight("p-9") == -9.0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_may_not_be_written(probe):
    job = probe(epochs=1)
    (job.work_dir / "checkpoints").mkdir(parents=True)
    (job.work_dir / "checkpoints").chmod(0o500)
    with pytest.raises(RunError, match="p-3"):
        job.run()


def test_file_in_place_of_the_folder(probe):
    job = probe(epochs=1)
    job.work_dir.mkdir(parents=True)
    (job.work_dir / "checkpoints").write_text("not a folder")
    with pytest.raises(RunError) as caught:
        job.run()
    assert str(job.path("p-3")) in str(caught.value)


def test_reading_a_checkpoint_needs_nothing_of_the_project(probe):
    job = probe(epochs=1)
    job.run()
    program = (
        "import sys, torch; state = torch.load(sys.argv[1], weights_only=True);"
        "print(float(state['model']['w']), any('scepter' in name for name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(job.path("p-3"))], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["-3.0", "False"]
