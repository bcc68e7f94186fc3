"""A store that fails: what is tried again, what is reported, and what is never lost."""

from __future__ import annotations

import gc
import os
import re
import uuid
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from scepter_core import HOOKS, Hook, RunError, find_checkpoint, run
from scepter_core.io import RemoteError, RunFileSystem
from scepter_core.sections import RemoteFsConfig


class Unsteady(MemoryFileSystem):
    """Files in memory behind a connection that fails as planned."""

    protocol = "unsteady"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    failures: ClassVar[list[Exception | None]] = []  # of the next calls; the last one stays
    calls: ClassVar[int] = 0
    replaces = True

    def __init__(self, password: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.password = password

    @classmethod
    def fail(cls) -> None:
        cls.calls += 1
        failure = cls.failures.pop(0) if len(cls.failures) > 1 else (cls.failures or [None])[0]
        if failure is not None:
            raise failure

    def info(self, path: str, **options: Any) -> Any:
        self.fail()
        return super().info(path, **options)

    def put_file(self, *arguments: Any, **options: Any) -> None:
        self.fail()
        super().put_file(*arguments, **options)

    def get_file(self, path: str, local: str, **options: Any) -> None:
        self.fail()
        Path(local).write_bytes(super().cat_file(path))

    def cat_file(self, *arguments: Any, **options: Any) -> Any:
        self.fail()
        return super().cat_file(*arguments, **options)

    def mv(self, path: str, to: str, **options: Any) -> None:
        if not self.replaces and to in self.store:
            raise OSError(f"{to} exists")
        super().mv(path, to, **options)


fsspec.register_implementation("unsteady", Unsteady, clobber=True)


@HOOKS.register_class()
class LeavesOpen(Hook):
    """Writes to a file that it does not close."""

    def after_solve(self, solver):
        self.file = solver.file_system.open(f"{solver.work_dir}/notes.txt", "a")
        self.file.write("a note\n")
        self.file.flush()


class Warnings(list[str]):
    def __call__(self, message: str, *arguments: object) -> None:
        self.append(message % arguments)


@pytest.fixture
def unsteady(monkeypatch: pytest.MonkeyPatch):
    """A file system, a folder in it, and what it warned of. Plan `Unsteady.failures`."""
    monkeypatch.setattr("scepter_core.io.trying._FIRST_WAIT", 0.01)
    monkeypatch.setattr(Unsteady, "failures", [])
    monkeypatch.setattr(Unsteady, "replaces", True)
    warnings = Warnings()
    return RunFileSystem(RemoteFsConfig(protocol="unsteady", PASSWORD="sesame"), warnings), f"unsteady://{uuid.uuid4().hex}", warnings


def _put(files, path, data=b"data"):
    files.write_atomic(path, lambda file: file.write(data))


def _stored(path):
    return Unsteady.store[Unsteady._strip_protocol(path)].getvalue()


LOST = [ConnectionResetError("reset by peer"), TimeoutError("timed out"), OSError("broken pipe"), RuntimeError("of the driver's library")]


@pytest.mark.parametrize("lost", LOST, ids=lambda error: type(error).__name__)
def test_a_connection_that_comes_back_in_time_costs_a_warning(unsteady, lost):
    files, folder, warnings = unsteady
    Unsteady.failures = [lost, lost, None]
    _put(files, f"{folder}/a")
    assert _stored(f"{folder}/a") == b"data"
    assert len(warnings) == 2
    assert re.fullmatch(rf"{folder}/a: {lost}; trying again in \d s", warnings[0])


def test_one_that_stays_lost_is_reported_and_old_files_stay(unsteady):
    files, folder, warnings = unsteady
    _put(files, f"{folder}/a", b"old")
    Unsteady.failures = [ConnectionResetError("reset by peer")]
    Unsteady.calls = 0
    with pytest.raises(RemoteError, match=rf"^reset by peer \({folder}/a, given up after 4 attempts in \d+ s\)$"):
        _put(files, f"{folder}/a", b"new")
    assert (len(warnings), _stored(f"{folder}/a")) == (3, b"old")
    calls = Unsteady.calls
    with pytest.raises(RemoteError, match=r"given up at once"):  # not another round so soon
        files.size(f"{folder}/a")
    assert Unsteady.calls == calls + 1
    Unsteady.failures = []
    _put(files, f"{folder}/a", b"new")
    assert (_stored(f"{folder}/a"), files.listdir(folder)) == (b"new", ["a"])


@pytest.mark.parametrize(
    "ask", ["exists", "isfile", "isdir", "size", "open", "remove_all"]
)
def test_a_lost_connection_is_never_taken_for_a_missing_file(unsteady, ask):
    files, folder, _ = unsteady
    _put(files, f"{folder}/a")
    Unsteady.failures = [ConnectionResetError("reset by peer")]
    with pytest.raises(RemoteError, match="reset by peer"):
        getattr(files, ask)(f"{folder}/a")


@pytest.mark.parametrize("final", [PermissionError("not yours"), NotImplementedError("read only"), ValueError("no such option")])
def test_what_another_attempt_cannot_mend_is_reported_at_once(unsteady, final):
    files, folder, warnings = unsteady
    Unsteady.failures = [final]
    with pytest.raises(RemoteError, match=rf"^{final} \({folder}/a\)$"):
        files.size(f"{folder}/a")
    assert warnings == []


def test_how_often_is_configured(unsteady):
    _, folder, _ = unsteady
    Unsteady.failures = [OSError("gone")]
    for times, words in ((0, "given up after 1 attempt"), (1, "given up after 2 attempts")):
        with pytest.raises(RemoteError, match=words):
            RunFileSystem(RemoteFsConfig(protocol="unsteady", retry_times=times)).size(f"{folder}/a")


def test_secrets_in_a_drivers_message_are_masked(unsteady):
    files, folder, warnings = unsteady
    Unsteady.failures = [OSError("login ann:sesame refused, see ftp://ann:other@host/x")]
    with pytest.raises(RemoteError) as caught:
        files.size(f"{folder}/a")
    shown = " ".join([str(caught.value), *warnings])
    assert "login ann:*** refused, see ftp://ann:***@host/x" in shown
    assert "sesame" not in shown


def test_a_store_that_does_not_replace_keeps_the_old_file_till_the_new_one_is_there(unsteady, monkeypatch):
    files, folder, _ = unsteady
    _put(files, f"{folder}/a", b"old")
    Unsteady.replaces = False
    _put(files, f"{folder}/a", b"new")
    assert (_stored(f"{folder}/a"), files.listdir(folder)) == (b"new", ["a"])

    def refuses(self, path, to, **options):
        if to.endswith("/a") and not path.endswith(".old.tmp"):
            raise PermissionError("no")
        MemoryFileSystem.mv(self, path, to, **options)

    monkeypatch.setattr(Unsteady, "mv", refuses)
    with pytest.raises(RemoteError, match=r"^no "):
        _put(files, f"{folder}/a", b"newer")
    assert (_stored(f"{folder}/a"), files.listdir(folder)) == (b"new", ["a"])


def test_a_log_that_cannot_be_uploaded_stays_on_the_local_disk(unsteady):
    files, folder, _ = unsteady
    file = files.open(f"{folder}/log.txt", "a")
    file.write("the only copy\n")
    Unsteady.failures = [ConnectionResetError("reset by peer")]
    with pytest.raises(RemoteError, match=r"reset by peer .*log\.txt.*; what it was to hold is in ") as caught:
        file.close()
    copy = Path(str(caught.value).rpartition(" is in ")[2])
    del files, file, caught
    gc.collect()
    assert copy.read_text() == "the only copy\n"
    copy.unlink()


def test_copies_on_the_local_disk_go_with_the_file_system(unsteady, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files, folder = RunFileSystem(), unsteady[1]
    with files.open(f"{folder}/log.txt", "a") as file:
        file.write("x")
        assert len(os.listdir(tmp_path)) == 1
    del files, file
    gc.collect()
    assert os.listdir(tmp_path) == []


def _config(everything, folder, **keys):
    return everything(folder, FILE_SYSTEM={"PROTOCOL": "unsteady", "RETRY_TIMES": 1}, EVAL_DATA=None, **keys)


def test_resume_auto_does_not_start_afresh_because_the_store_is_out_of_reach(unsteady, everything):
    """Neither when the files are listed, nor while they are looked into."""
    files, folder, _ = unsteady
    config = _config(everything, folder, MAX_EPOCHS=1)
    hook = config["SOLVER"]["TRAIN_HOOKS"][-1]
    hook.update(INTERVAL_STEPS=3, SAVE_LAST=False, SAVE_BEST=False)
    run(config)
    assert find_checkpoint(folder, "auto", print, files) is not None
    whole = Unsteady.calls
    find_checkpoint(folder, "auto", print, files)
    for number in range(Unsteady.calls - whole):
        Unsteady.failures = [*[None] * number, ConnectionResetError("reset by peer")]
        with pytest.raises(RemoteError, match="reset by peer"):
            find_checkpoint(folder, "auto", print, RunFileSystem(RemoteFsConfig(protocol="unsteady", retry_times=0)))


def test_a_file_that_a_hook_left_open_is_stored_at_the_end(unsteady, everything):
    _, folder, _ = unsteady
    config = _config(everything, folder, MAX_EPOCHS=1)
    config["SOLVER"]["TRAIN_HOOKS"] = [config["SOLVER"]["TRAIN_HOOKS"][0], {"NAME": "LeavesOpen"}]
    run(config)
    assert _stored(f"{folder}/notes.txt") == b"a note\n"


def test_on_save_error_warn_lets_the_run_go_on_without_the_file(unsteady, everything, monkeypatch):
    _, folder, _ = unsteady
    config = _config(everything, folder, MAX_EPOCHS=1)
    hook = config["SOLVER"]["TRAIN_HOOKS"][-1]
    hook.update(ON_SAVE_ERROR="warn", ASYNC=False, SAVE_LAST=False, SAVE_BEST=False, INTERVAL=0)
    config["SOLVER"]["TRAIN_HOOKS"] = [config["SOLVER"]["TRAIN_HOOKS"][0], hook]
    put = Unsteady.put_file

    def put_file(self, local, path, **options):
        if "ldm_step-2" in path:
            raise ConnectionResetError("reset by peer")
        put(self, local, path, **options)

    monkeypatch.setattr(Unsteady, "put_file", put_file)
    solver = run(config)
    assert solver.train_steps == 4
    assert RunFileSystem().listdir(f"{folder}/checkpoints") == ["ldm_step-4.pth"]
    hook["ON_SAVE_ERROR"] = "error"
    config["SOLVER"]["WORK_DIR"] = f"{folder}-2"
    with pytest.raises(RunError, match=r"could not write the checkpoint \S+ldm_step-2\.pth: reset by peer"):
        run(config)
