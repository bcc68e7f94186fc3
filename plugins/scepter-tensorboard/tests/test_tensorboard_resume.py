"""A run that ended in the middle and was resumed: every step once, none missing, nothing else touched."""

from __future__ import annotations

import os
import socket
import struct
import time

import pytest
import torch

VALUES = [0.125, 0.75, 0.25, 1.0, 0.5]  # exact in single precision, and so are their means by 2 and 4


def value_at(step):
    return VALUES[(step - 1) % 5]


def assert_every_step_once(board, steps):
    assert board.points() == [(step, value_at(step)) for step in steps]


@pytest.mark.parametrize(("how", "status"), [("exit", 9), ("kill", -9)])
def test_e01_crash_and_resume(train, how, status):
    crashed = train(VALUES, epochs=2, save_epoch=1, end_at=8, how=how, process=status)
    assert_every_step_once(crashed, range(1, 9))  # what was written was in the file
    began = time.time()
    resumed = train(VALUES, epochs=2, load="saved")
    assert_every_step_once(resumed, range(1, 11))
    times = [point.wall_time for point in resumed.accumulator.Scalars("train/iter/loss")]
    assert [written >= began for written in times] == [False] * 5 + [True] * 5
    assert resumed.points("train/epoch/loss") == [(5, 0.5249999761581421), (10, 0.5249999761581421)]


def test_e01_a_record_that_the_crash_cut_in_two(train):
    crashed = train(VALUES, epochs=2, save_epoch=1, end_at=7, how="kill", process=-9)
    with crashed.files[0].open("ab") as file:
        file.write(struct.pack("<QI", 100, 0) + b"half of a record")
    resumed = train(VALUES, epochs=2, load="saved")
    assert_every_step_once(resumed, range(1, 11))
    assert b"half of a record" not in b"".join(path.read_bytes() for path in resumed.files)


def test_e01_a_record_cut_in_two_before_the_first_checkpoint(train):
    crashed = train(VALUES, epochs=2, end_at=3, how="kill", process=-9)
    with crashed.files[0].open("r+b") as file:
        file.truncate(crashed.files[0].stat().st_size - 5)
    again = train(VALUES, epochs=2)
    assert_every_step_once(again, range(1, 11))


def test_a_full_disk_ends_the_run_and_a_resume_repairs_the_file(train, tmp_path):
    size = train(VALUES, name="probe", epochs=2, end_at=7, fails=KeyError).files[0].stat().st_size
    full = {"NAME": "BoardTestFullDisk", "PRIORITY": 200, "AT": 7, "SIZE": size + 30}
    board = train(VALUES, epochs=2, save_epoch=1, more=[full], process=1)
    assert "RunError: cannot write event files in" in (tmp_path / "process.txt").read_text()
    assert board.files[0].stat().st_size == size + 30, "a record cut in two"
    assert_every_step_once(train(VALUES, epochs=2, load="saved"), range(1, 11))


def test_what_a_checkpoint_counts_on_is_on_the_disk(train, monkeypatch):
    synced: dict[int, list[int]] = {}

    def watched(file):
        found = os.fstat(file)
        synced.setdefault(found.st_ino, []).append(found.st_size)

    monkeypatch.setattr(os, "fsync", watched)
    lengths = []
    for name, keys in (("middle", {"save_at": 3}), ("end", {"save_end": True})):
        board = train(VALUES, name=name, saved=name, **keys)
        (length,) = _saved_lengths(board, name)
        assert length in synced[board.files[0].stat().st_ino]
        lengths.append(length)
    assert lengths[0] < lengths[1]


def _saved_lengths(board, name):
    hooks = torch.load(board.folder.parents[1] / f"{name}.pth", weights_only=True)["hooks"]
    return hooks["train/TensorboardLogHook"]["state"]["log"]["files"].values()


@pytest.mark.parametrize("interval", [1, 2, 3, 1000, 0])
@pytest.mark.parametrize(
    "saved", [*({"save_at": step} for step in (1, 4, 5, 6, 9)), {"save_epoch": 1}, {"save_epoch": 2}]
)
def test_a_resume_from_anywhere_is_as_if_nothing_had_happened(train, interval, saved):
    keys = {"interval": interval, "epochs": 3, "eval_values": [1.0, 2.0]}
    whole = train(VALUES, name="whole", **keys)
    train(VALUES, **keys, **saved, end_at=13, fails=KeyError)
    assert train(VALUES, **keys, load="saved").everything == whole.everything


def test_a_window_that_is_open_after_the_last_iteration_is_not_lost(train):
    keys = {"interval": 2, "epochs": 2, "NAME": "BoardTestSolver"}
    train([1, 2, 3], **keys, save_at=3, end_at=3, fails=KeyError)
    assert train([1, 2, 3], **keys, load="saved").points() == [(2, 1.5), (3, 3.0), (5, 1.5), (6, 3.0)]


def test_several_resumes_in_a_row(train):
    train(VALUES, epochs=4, save_at=3, saved="a", end_at=6, fails=KeyError)
    train(VALUES, epochs=4, load="a", saved="b", save_at=8, end_at=9, fails=KeyError)
    board = train(VALUES, epochs=4, load="b", saved="c", save_at=14, end_at=17, fails=KeyError)
    assert len(board.files) == 3
    assert_every_step_once(board, range(1, 18))
    assert_every_step_once(train(VALUES, epochs=4, load="c"), range(1, 21))


def test_back_to_an_earlier_checkpoint(train):
    train(VALUES, epochs=2, save_at=3, saved="early", end_at=6, fails=KeyError)
    later = train(VALUES, epochs=2, load="early", saved="late", save_at=8)
    first, second = later.files
    again = train(VALUES, epochs=2, load="early", end_at=5, fails=KeyError)
    assert first in again.files
    assert second not in again.files
    assert_every_step_once(again, range(1, 6))
    assert not list(again.folder.glob("earlier-*")), "a branch that the run left is not another run"


def test_a_crash_after_a_resume_and_before_the_next_checkpoint(train):
    train(VALUES, epochs=2, save_epoch=1, end_at=6, fails=KeyError)
    train(VALUES, epochs=2, load="saved", saved="none", end_at=9, how="kill", process=-9)
    board = train(VALUES, epochs=2, load="saved")
    assert len(board.files) == 2
    assert_every_step_once(board, range(1, 11))


def test_a_checkpoint_from_before_the_first_record(train):
    keys = {"interval": 4, "epochs": 1}
    train([1.0, 2.0, 3.0, 4.0, 5.0], **keys, save_at=2, end_at=4, fails=KeyError)
    board = train([1.0, 2.0, 3.0, 4.0, 5.0], **keys, load="saved")
    assert board.points() == [(4, 2.5), (5, 5.0)]
    assert len(board.files) == 1
    assert not list(board.folder.glob("earlier-*"))


def test_the_last_checkpoint_knows_the_last_record(train):
    board = train(VALUES, save_end=True)
    assert_every_step_once(train(VALUES, epochs=2, load="saved"), range(1, 11))
    assert len(board.files) == 2


def test_files_stay_in_order_when_the_clock_goes_back(train, monkeypatch):
    train(VALUES, epochs=2, save_epoch=1, end_at=8, fails=KeyError)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 86400)
    board = train(VALUES, epochs=2, load="saved")
    assert board.steps() == list(range(1, 11))
    first, second = board.files
    assert first.name < second.name


def test_two_resumes_within_one_second(train, monkeypatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    train(VALUES, epochs=2, save_epoch=1, saved="a", end_at=6, fails=KeyError)
    train(VALUES, epochs=2, load="a", saved="b", save_at=7, end_at=8, fails=KeyError)
    board = train(VALUES, epochs=2, load="b")
    assert len(board.files) == 3
    assert_every_step_once(board, range(1, 11))


def test_a_finished_run_touches_nothing(train):
    board = train(VALUES, save_epoch=1)
    with board.files[0].open("ab") as file:
        file.write(b"what came after the checkpoint")
    before = board.content()
    train(VALUES, load="saved")
    assert board.content() == before


def test_nothing_is_touched_before_the_first_record(train):
    board = train(VALUES, interval=4, epochs=2, save_at=6, end_at=9, fails=KeyError)
    before = board.content()
    train(VALUES, interval=4, epochs=2, load="saved", saved="later", save_at=8, end_at=8, fails=KeyError)
    assert board.content() == before
    assert train(VALUES, interval=4, epochs=2, load="later").steps() == [4, 5, 9, 10]


def test_a_new_run_moves_the_files_of_an_earlier_one_aside(train):
    first = train(VALUES, end_at=3, fails=KeyError)
    (path,) = first.files
    content = path.read_bytes()
    again = train(VALUES)
    assert_every_step_once(again, range(1, 6))
    assert (again.folder / "earlier-1" / path.name).read_bytes() == content
    train(VALUES)
    assert len(list((again.folder / "earlier-2").iterdir())) == 1
    assert_every_step_once(again, range(1, 6))


def test_a_shared_folder_keeps_the_files_of_other_runs(train, tmp_path):
    shared = {"LOG_DIR": str(tmp_path / "shared")}
    train([9.0] * 3, name="other", hook=shared)
    board = train(VALUES, epochs=2, hook=shared, save_epoch=1, end_at=8, fails=KeyError)
    other, own = board.files
    foreign = board.folder / f"events.out.tfevents.1700000000.{socket.gethostname()}"
    foreign.write_bytes(other.read_bytes())
    (board.folder / "notes.txt").write_text("mine")
    kept = [(path.stat().st_mtime_ns, path.read_bytes()) for path in (other, foreign)]
    train(VALUES, epochs=2, hook=shared, load="saved")
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in (other, foreign)] == kept
    assert (board.folder / "notes.txt").read_text() == "mine"
    assert len(board.files) == 4
    other.unlink()
    foreign.unlink()
    assert own in board.files
    assert_every_step_once(board, range(1, 11))


def test_a_folder_beside_work_dir_is_not_within_it(train, tmp_path):
    beside = {"LOG_DIR": str(tmp_path / "run" / ".." / "boards")}
    train([9.0], name="other", hook={"LOG_DIR": str(tmp_path / "boards")})
    (other,) = (tmp_path / "boards").iterdir()
    train(VALUES, hook=beside)
    assert other.exists()


def test_another_work_dir_leaves_the_first_alone(train):
    board = train(VALUES, epochs=2, save_epoch=1)
    before = board.content()
    branch = train(VALUES, name="branch", epochs=2, load="saved")
    assert board.content() == before
    assert_every_step_once(branch, range(6, 11))


def test_a_folder_that_was_left_and_taken_again_is_complete(train, tmp_path):
    train(VALUES, epochs=4, save_epoch=1, saved="a", end_at=7, fails=KeyError)
    elsewhere = {"LOG_DIR": str(tmp_path / "elsewhere")}
    train(VALUES, epochs=4, load="a", hook=elsewhere, saved="b", save_epoch=2, end_at=12, fails=KeyError)
    board = train(VALUES, epochs=4, load="b")
    assert_every_step_once(board, [*range(1, 6), *range(11, 21)])
    board.folder = tmp_path / "elsewhere"
    assert_every_step_once(board, range(6, 13))


def test_hooks_that_share_a_file_resume_together(train):
    listed = [{"NAME": "TensorboardLogHook"}]
    keys = {"epochs": 3, "interval": 2, "eval_values": [1.0, 2.0], "eval_hooks": listed}
    whole = train(VALUES, name="whole", **keys)
    train(VALUES, **keys, save_epoch=2, end_at=13, fails=KeyError)
    board = train(VALUES, **keys, load="saved")
    assert board.everything == whole.everything
    assert len(board.files) == 2


def test_a_run_that_is_taken_up_again_in_the_same_process(train):
    board = train(VALUES)
    with board.files[0].open("ab") as file:
        file.write(b"what a full disk left of a record")
    board.solver.max_epochs = 2
    board.solver.solve()
    assert len(board.files) == 1
    assert_every_step_once(board, range(1, 11))


def test_a_hook_that_the_checkpoint_does_not_know(train):
    train(VALUES, epochs=2, hook=None, save_epoch=1)
    board = train(VALUES, epochs=2, load="saved")
    assert_every_step_once(board, range(6, 11))


def test_an_eval_adds_its_point_and_a_resume_moves_it_aside(train):
    trained = train(VALUES, save_epoch=1, save_at=5)
    evaluated = train(VALUES, eval_values=[2.0, 4.0], load="saved", mode="eval")
    assert evaluated.points("eval/epoch/loss") == [(5, 3.0)]
    assert_every_step_once(trained, range(1, 6))
    board = train(VALUES, epochs=2, load="saved", eval_values=[2.0, 4.0])
    assert board.steps("eval/epoch/loss") == [10]
    assert len(list((board.folder / "earlier-1").iterdir())) == 1
    assert_every_step_once(board, range(1, 11))


def test_the_state_is_of_plain_values(train):
    board = train(VALUES, interval=2, save_at=3)
    hook = board.solver.hooks_dict["train"][2]
    state = hook.state_dict()
    assert state["log"]["files"] == {board.files[0].name: board.files[0].stat().st_size}
    assert board.files[0].name.endswith(f".{state['log']['run']}.scepter")
    assert hook.rank_state_dict() == {"window": {"steps": 0, "sums": {}, "weights": {}}}
