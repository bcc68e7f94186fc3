"""Saved by some processes, resumed by others: the same run goes on."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from scepter_core import read_checkpoint
from scepter_core.cli import main
from tests.distributed.conftest import LAST, Many, assert_same

WAYS = {"single": (1, 12), "ddp": (2, 6), "fsdp": (2, 6), "fsdp of 3": (3, 4)}


def _go(many: Many, name: str, way: str, *arguments: str, hooks: str = ""):
    nproc, batch_size = WAYS[way]
    arguments = (f"SOLVER.TRAIN_DATA.BATCH_SIZE={batch_size}", f"ENV.STRATEGY={way.split()[0]}", *arguments)
    done = many.run(name, *arguments, nproc=nproc, log=2, hooks=hooks)
    assert done.status == 0, done.err
    return done


@pytest.mark.parametrize(("first", "then"), [("single", "fsdp"), ("ddp", "single"), ("fsdp", "single"), ("fsdp", "fsdp of 3")])
def test_a_run_cut_in_mid_epoch_goes_on(many: Many, first: str, then: str) -> None:
    whole = _go(many, "whole", "single")
    assert _go(many, "run", first, "SOLVER.MAX_STEPS=2").state()["iter"] == 2
    ended = _go(many, "run", then, "--resume", "auto")
    one, other = whole.state(), ended.state()
    for key in ("epoch", "iter", "total_updates", "position"):
        assert one[key] == other[key]
    assert one["total_iter"]["train"] == other["total_iter"]["train"] == 8
    assert_same(one["model"], other["model"], within=1e-6)
    assert_same(one["optimizer"]["state"], other["optimizer"]["state"], within=1e-6)
    assert_same(one["metrics"]["epoch_outputs"], other["metrics"]["epoch_outputs"], within=1e-5)


def test_metrics_of_a_cut_epoch_are_those_of_all_batches(many: Many) -> None:
    metrics = (
        "SOLVER.METRICS=[{NAME: MulticlassAUROC, NUM_CLASSES: 3, KEYS: [logits, y]}, "
        "{NAME: MulticlassF1Score, NUM_CLASSES: 3, AVERAGE: macro, KEYS: [logits, y]}, "
        "{NAME: PearsonCorrCoef, NUM_OUTPUTS: 3, KEYS: [logits, logits]}]"  # its states, once joined, cannot grow
    )
    whole = _go(many, "whole", "single", metrics)
    _go(many, "run", "fsdp of 3", metrics, "SOLVER.MAX_STEPS=1")
    _go(many, "run", "ddp", metrics, "SOLVER.MAX_STEPS=2", "--resume", "auto")
    ended = _go(many, "run", "single", metrics, "--resume", "auto")
    assert_same(whole.state()["metrics"]["epoch_outputs"], ended.state()["metrics"]["epoch_outputs"], within=1e-5)


def test_another_global_batch_reads_every_sample_once(many: Many) -> None:
    # 12 of 37 samples are read in batches of 6; the other 25 come in batches of 8: 4 more steps.
    many.run("run", "SOLVER.TRAIN_DATA.BATCH_SIZE=3", "SOLVER.MAX_STEPS=2", "SOLVER.MAX_EPOCHS=1", nproc=2)
    done = many.run("run", "SOLVER.TRAIN_DATA.BATCH_SIZE=8", "SOLVER.MAX_EPOCHS=1", "--resume", "auto", log=1)
    assert done.state()["total_iter"]["train"] == 6
    assert "the run had 2 processes, and has 1 now" in done.out
    assert [row["step"] for row in done.rows if (row["mode"], row["kind"]) == ("train", "iter")][-4:] == [3, 4, 5, 6]
    means = done.state()["metrics"]["ranks"][0]["means"]["train"]
    assert means["weights"]["loss"] == 37


def test_the_same_number_goes_on_to_the_bit(many: Many) -> None:
    for way in ("ddp", "fsdp"):
        whole = _go(many, f"whole-{way}", way, "SOLVER.MODEL.DROP=0.5")
        _go(many, f"run-{way}", way, "SOLVER.MODEL.DROP=0.5", "SOLVER.MAX_STEPS=2")
        ended = _go(many, f"run-{way}", way, "SOLVER.MODEL.DROP=0.5", "--resume", "auto")
        one, other = whole.state(), ended.state()
        for state in (one, other):
            del state["config"]
            del state["total_iter"]["eval"]  # the cut has an eval of its own
            del state["hooks"]["train/LogHook"]["state"]["length"]  # the file's times have other digits
        assert_same(one, other)
        # The cut shows what it has of the epoch.
        assert whole.rows == [row for row in ended.rows if (row["step"], row["kind"]) != (2, "epoch")]


@pytest.mark.parametrize(("own", "first", "left"), [("true", 19, 19 + 19 - 8), ("false", 37, 37 + 37 - 15)])
def test_a_stream_with_a_state_reads_nothing_again(many: Many, own: str, first: int, left: int) -> None:
    """Two processes, batches of four: by the cut after two steps the first has had 8 of its points, the 15th of all is its last."""

    def go(name: str, *more: str):
        log = many.folder / f"{name}-{len(more)}"
        log.mkdir()
        data = f"SOLVER.TRAIN_DATA={{NAME: NotedStream, OWN: {own}, BATCH_SIZE: 4, NUM_WORKERS: 1, LOG: '{log}'}}"
        done = many.run(name, data, *more, nproc=2)
        assert done.status == 0, done.err
        return done.state(), len((log / "0").read_text().splitlines())

    whole, read = go("whole")
    assert read == 2 * first
    go("run", "SOLVER.MAX_STEPS=2")
    ended, read = go("run", "--resume", "auto")
    assert read == left
    assert_same(whole["model"], ended["model"])
    assert_same(whole["optimizer"]["state"], ended["optimizer"]["state"])


def test_a_stream_goes_on_with_the_next_sample(many: Many) -> None:
    """Three steps of two processes have read 18 of 37 samples: a single one, and then three, read the other 19."""
    stream = "SOLVER.TRAIN_DATA={NAME: PointStream, BATCH_SIZE: %d}"
    once = ("SOLVER.MAX_EPOCHS=1", "--resume", "auto")
    done = many.run("run", stream % 3, *once, "SOLVER.MAX_STEPS=3", nproc=2)
    assert done.status == 0, done.err
    done = many.run("run", stream % 4, *once, "SOLVER.MAX_STEPS=5")
    assert "the run had 2 processes, and has 1 now: it goes on with the next sample" in done.out
    done = many.run("run", stream % 2, *once, nproc=3)
    assert done.status == 0, done.err
    state = done.state()
    assert state["total_iter"]["train"] == 3 + 2 + 2  # 18, 8 and 11 samples
    assert sum(rank["means"]["train"]["weights"]["loss"] for rank in state["metrics"]["ranks"]) == 37


def test_where_a_place_is_no_number_of_samples_it_says_so(many: Many) -> None:
    stream = "SOLVER.TRAIN_DATA={NAME: PointStream, OWN: true, BATCH_SIZE: 3}"
    many.run("run", stream, "SOLVER.MAX_STEPS=3", nproc=2)
    done = many.run("run", stream, "--resume", "auto")
    assert "has 1 now: in this epoch some samples can be read twice and others not at all" in done.out


class TestFiles:
    """A checkpoint that is spread over files."""

    @pytest.fixture
    def spread(self, many: Many) -> Path:
        _go(many, "run", "fsdp", "SOLVER.MAX_EPOCHS=1")
        return many.folder / "run/checkpoints/ldm_step-last.pth"

    def parts(self, path: Path) -> Path:
        (folder,) = path.parent.glob("ldm_step-last.*.shards")
        return folder

    def test_converts_to_one_file(self, spread: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        whole, weights = tmp_path / "whole.pth", tmp_path / "weights.safetensors"
        assert main(["convert", str(spread), str(whole)]) == 0
        assert main(["convert", str(spread), str(weights)]) == 0
        state = torch.load(whole, weights_only=True)
        assert_same(state, read_checkpoint(str(spread)))
        names = {"blocks.0.weight", "blocks.0.bias", "head.2.weight", "seen"}
        assert names <= set(state["model"])
        assert_same({name: state["model"][name] for name in load_file(weights)}, load_file(weights))
        assert names <= set(load_file(weights))

    @pytest.mark.parametrize("harm", ["cut", "flipped", "missing"])
    def test_damage_is_seen(self, spread: Path, harm: str, capsys: pytest.CaptureFixture[str]) -> None:
        part = next(self.parts(spread).glob("__1_*"))
        data = bytearray(part.read_bytes())
        if harm == "missing":
            part.unlink()
        else:
            data[len(data) // 2] ^= 1
            part.write_bytes(data[:-1] if harm == "cut" else data)
        assert main(["checkpoints", str(spread.parents[1])]) == 0
        assert "DAMAGED" in capsys.readouterr().out.upper()
        assert main(["convert", str(spread), str(spread.with_name("new.pth"))]) == 1
        assert f"its part {part} is {'missing' if harm == 'missing' else 'damaged'}" in capsys.readouterr().err
        assert not spread.with_name("new.pth").exists()

    def test_resume_passes_over_damage_that_any_process_finds(self, many: Many) -> None:
        _go(many, "run", "fsdp", "SOLVER.MAX_STEPS=3", hooks="{NAME: CheckpointHook, INTERVAL_STEPS: 1}")
        for step, number in ((3, 0), (2, 1)):
            [part] = (many.folder / "run/checkpoints").glob(f"ldm_step-{step}.*.shards/__{number}_*")
            data = bytearray(part.read_bytes())
            data[len(data) // 2] ^= 1
            part.write_bytes(data)
        done = _go(many, "run", "fsdp", "SOLVER.MAX_STEPS=4", "--resume", "auto")
        assert done.out.count("its part") == 2
        for step in (2, 3):
            assert f"passing over the checkpoint {many.folder}/run/checkpoints/ldm_step-{step}.pth: its part " in done.out
        assert "(epoch 1, step 1)" in done.out

    def test_each_process_reads_its_parts_and_a_share_for_the_checksums(self, many: Many) -> None:
        width = "SOLVER.MODEL.WIDTH=400000"
        _go(many, "run", "fsdp", width, "SOLVER.MAX_STEPS=1")
        size = sum(part.stat().st_size for part in self.parts(many.folder / "run/checkpoints/ldm_step-last.pth").iterdir())
        assert size > 50e6
        done = _go(many, "run", "fsdp", width, "SOLVER.MAX_STEPS=1", "--resume", "auto", hooks="{NAME: ReadAtResume}, " + LAST)
        [line] = [line for line in done.out.splitlines() if line.startswith("bytes read:")]
        read = [int(number) / size for number in line.split()[2:]]
        assert len(read) == 2
        assert all(0.9 < part < 1.3 for part in read), read

    def test_an_index_that_asks_for_code_is_refused(self, spread: Path, capsys: pytest.CaptureFixture[str]) -> None:
        class Evil:
            def __reduce__(self):
                return (Path.touch, (spread.with_name("executed"),))

        index = self.parts(spread) / ".metadata"
        index.write_bytes(pickle.dumps(Evil()))
        state = torch.load(spread, weights_only=True)
        import zlib

        state["shards"]["files"][".metadata"] = [index.stat().st_size, zlib.crc32(index.read_bytes())]
        torch.save(state, spread)
        assert main(["convert", str(spread), str(spread.with_name("new.pth"))]) == 1
        assert "its index cannot be read: it names " in capsys.readouterr().err
        assert not spread.with_name("executed").exists()

    def test_what_no_file_lists_is_removed(self, many: Many, spread: Path) -> None:
        old = self.parts(spread)
        left = spread.with_name("ldm_step-3.0000abcd.shards")
        shutil.copytree(old, left)
        _go(many, "run", "fsdp", "--resume", "auto")
        assert not left.exists()
        assert not old.exists()
        assert self.parts(spread).name == torch.load(spread, weights_only=True)["shards"]["folder"]
