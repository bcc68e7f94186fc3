"""Local files, files in memory, on S3 and behind FTP: one behaviour."""

from __future__ import annotations

import io
import tempfile
import uuid
from pathlib import Path

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scepter_core.errors import ConfigError
from scepter_core.io import RemoteError, RunFileSystem
from scepter_core.sections import RemoteFsConfig


@pytest.fixture(params=["local", "file", "memory", "s3", "ftp"])
def place(request, tmp_path):
    """A file system, and a folder in it that is empty."""
    if request.param == "s3":
        server, bucket = request.getfixturevalue("s3")
        return RunFileSystem(RemoteFsConfig(**_lower(server.section))), f"{bucket}/folder"
    if request.param == "ftp":
        files = RunFileSystem()
        return files, files.absolute(f"ftp://{request.getfixturevalue('ftp')[0]}/{uuid.uuid4().hex}")
    if request.param == "memory":
        return RunFileSystem(), request.getfixturevalue("memory")
    return RunFileSystem(), str(tmp_path) if request.param == "local" else f"file://{tmp_path}"


def _lower(section):
    return {"protocol": section["PROTOCOL"], **{key: value for key, value in section.items() if key != "PROTOCOL"}}


def _put(files, path, data):
    files.write_atomic(path, lambda file: file.write(data))


def _get(files, path):
    with files.open(path, "rb") as file:
        return file.read()


def test_whole_files(place):
    files, folder = place
    a, b = files.join(folder, "sub", "a.bin"), files.join(folder, "sub", "b.bin")
    assert (files.exists(a), files.isfile(a), files.size(a), files.listdir(folder)) == (False, False, 0, [])
    _put(files, a, b"first")
    _put(files, a, b"second, longer")  # replaces
    assert (files.exists(a), files.isfile(a), files.isdir(a), files.size(a)) == (True, True, False, 14)
    assert (files.isdir(files.join(folder, "sub")), files.listdir(files.join(folder, "sub"))) == (True, ["a.bin"])
    files.move(a, b)
    assert (files.listdir(files.join(folder, "sub")), _get(files, b)) == (["b.bin"], b"second, longer")
    with files.fetched(b) as local:
        assert Path(local).read_bytes() == b"second, longer"
    with pytest.raises(FileNotFoundError), files.fetched(a):
        pass
    with pytest.raises(FileNotFoundError):
        files.open(a, "rb")
    files.remove(b)
    files.remove(b)  # nothing there: nothing happens
    assert not files.exists(b)


def test_a_write_that_fails_leaves_what_stood_there(place):
    files, folder = place
    path = files.join(folder, "a.bin")
    _put(files, path, b"whole")

    def half(file):
        file.write(b"half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        files.write_atomic(path, half)
    assert (_get(files, path), files.listdir(folder)) == (b"whole", ["a.bin"])


def test_files_that_grow(place):
    files, folder = place
    path = files.join(folder, "log.txt")
    files.makedirs(folder)
    with files.open(path, "a") as file:
        file.write("eins\n")
    with files.open(path, "ab") as file:
        file.write(b"zwei\n")
        file.flush()
        assert files.size(path) == 10
        assert files.listdir(folder) == ["log.txt"]
    assert _get(files, path) == b"eins\nzwei\n"
    files.truncate(path, 7)
    files.truncate(path, 9)  # shorter already
    assert files.size(path) == 7
    with files.open(path, "ab") as file:
        file.write(b"!")
    assert _get(files, path) == b"eins\nzw!"
    with files.open(path, "r") as text:
        assert text.read() == "eins\nzw!"
    with pytest.raises(FileExistsError):
        files.open(path, "xb")
    with files.open(path, "w") as file:
        file.write("ä\n")
    assert _get(files, path) == "ä\n".encode()
    with files.open(path, "w"):
        pass
    assert files.size(path) == 0


def test_another_end_of_the_same_length_is_stored(place):
    files, folder = place
    path = files.join(folder, "log.txt")
    files.makedirs(folder)
    with files.open(path, "ab") as file:
        file.write(b"abcdef")
    files.truncate(path, 3)
    with files.open(path, "ab") as file:
        file.write(b"xyz")
    assert _get(files, path) == b"abcxyz"
    with files.open(path, "wb") as file:
        file.write(b"123456")
    assert _get(files, path) == b"123456"


def test_folders(place):
    files, folder = place
    for name in ("a/1", "a/b/2", "c", "keep"):
        _put(files, files.join(folder, name), b"x")
    files.remove_all(files.join(folder, "a"))
    files.remove_all(files.join(folder, "c"))
    files.remove_all(files.join(folder, "none"))
    assert files.listdir(folder) == ["keep"]
    _put(files, files.join(folder, ".half.pth.17.tmp"), b"x")
    assert files.remove_temporaries(folder) == [".half.pth.17.tmp"]
    assert files.listdir(folder) == ["keep"]


def _stored(path):
    """What a reader of another process would see."""
    fs = fsspec.filesystem("memory")
    return fs.cat(path) if fs.exists(path) else None


def test_what_a_checkpoint_may_refer_to_is_stored_before_it(memory):
    """Whatever the store of the checkpoint: the bytes of open files are uploaded first."""
    with tempfile.TemporaryDirectory() as folder:
        files = RunFileSystem()
        log = files.join(memory, "metrics.jsonl")
        with files.open(log, "ab") as file:
            file.write(b"row 1\n")
            file.flush()
            assert _stored(log) is None
            _put(files, files.join(folder, "checkpoint.pth"), b"state")
            assert _stored(log) == b"row 1\n"
            file.write(b"row 2\n")
            file.flush()
            assert _stored(log) == b"row 1\n"
        assert _stored(log) == b"row 1\nrow 2\n"
        files.truncate(log, 6)
        assert _stored(log) == b"row 1\nrow 2\n"
        _put(files, files.join(memory, "checkpoint.pth"), b"state")
        assert _stored(log) == b"row 1\n"


def test_a_file_that_grows_is_uploaded_now_and_then(memory, monkeypatch):
    monkeypatch.setattr("scepter_core.io.mirror.PERIOD", 0.05)
    files, path = RunFileSystem(), f"{memory}/log.txt"
    with files.open(path, "ab") as file:
        deadline = 200
        while _stored(path) is None and (deadline := deadline - 1):
            file.write(b"line\n")
            file.flush()
            import time

            time.sleep(0.02)
        assert _stored(path).startswith(b"line\n")


def test_reading_and_writing_at_once_is_refused(memory):
    with pytest.raises(io.UnsupportedOperation, match=r"mode 'r\+b'.*memory://"):
        RunFileSystem().open(f"{memory}/a", "r+b")


def test_a_missing_bucket_is_named_and_not_made(s3):
    server, _ = s3
    files = RunFileSystem(RemoteFsConfig(**_lower(server.section)))
    with pytest.raises(RemoteError, match=r"(?i)bucket does not exist.*s3://no-such-bucket/a"):
        _put(files, "s3://no-such-bucket/a", b"x")
    files.makedirs("s3://no-such-bucket/folder")
    assert "no-such-bucket" not in server.files.ls("")


def test_ftp_files_appear_whole_under_their_names(ftp):
    login, folder = ftp
    files = RunFileSystem()
    path = files.absolute(f"ftp://{login}/runs/1/a.bin")
    assert "pass-of-ann" not in path
    _put(files, path, b"data")
    assert [p.name for p in (folder / "runs" / "1").iterdir()] == ["a.bin"]
    assert (folder / "runs" / "1" / "a.bin").read_bytes() == b"data"


PATHS = [
    (("s3://b", "x", "y"), "s3://b/x/y"),
    (("s3://b/", "x/", "y/"), "s3://b/x/y"),
    (("s3://b", "gs://c/d", "e"), "gs://c/d/e"),
    (("file:///tmp/a", "b"), "/tmp/a/b"),
    (("/tmp", "s3://b", "c"), "s3://b/c"),
    (("a", "b"), "a/b"),
]


@pytest.mark.parametrize(("parts", "joined"), PATHS)
def test_joined_paths(parts, joined):
    assert RunFileSystem().join(*parts) == joined


def test_an_absolute_local_path_ends_a_url():
    assert RunFileSystem().join("s3://b/run", "/var/log/run.txt") == "/var/log/run.txt"


@pytest.mark.parametrize(
    ("path", "absolute"),
    [
        ("s3://b/a/../c//d/./", "s3://b/c/d"),
        ("S3://Bucket/A", "s3://Bucket/A"),
        ("ftp://u:p@h:2/x", "ftp://u@h:2/x"),
        ("file:///tmp/x/", "/tmp/x"),
        ("abfs://container@account/x", "abfs://container@account/x"),
    ],
)
def test_absolute_paths(path, absolute):
    assert RunFileSystem().absolute(path) == absolute


@pytest.mark.parametrize(
    ("path", "folder", "within"),
    [
        ("s3://b/run/a", "s3://b/run/", True),
        ("s3://b/running", "s3://b/run", False),
        ("s3://b/run/../other", "s3://b/run", False),
        ("s3://b/run", "/b/run", False),
        ("/b/run/x", "file:///b/run", True),
    ],
)
def test_within(path, folder, within):
    assert RunFileSystem().is_within(path, folder) is within


def test_an_unknown_protocol_is_a_configuration_error():
    with pytest.raises(ConfigError, match=r"fsspec knows no protocol s4; did you mean s3"):
        RunFileSystem().exists("s4://bucket/x")


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "append", "truncate", "remove", "move", "all"]),
        st.sampled_from(["a", "b", "sub/c"]),
        st.sampled_from(["a", "b", "sub/c"]),
        st.binary(max_size=6),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_any_order_of_writes_ends_as_on_the_local_disk(operations):
    files = RunFileSystem()
    with tempfile.TemporaryDirectory() as local:
        remote = f"memory://{uuid.uuid4().hex}"
        for folder in (local, remote):
            files.makedirs(files.join(folder, "sub"))
            for kind, name, other, data in operations:
                _operate(files, kind, files.join(folder, name), files.join(folder, other), data)
        names = ["a", "b", "sub/c"]
        seen = [
            [_get(files, path) if files.isfile(path) else None for path in (files.join(folder, n) for n in names)]
            for folder in (local, remote)
        ]
        assert seen[0] == seen[1]
        _put(files, files.join(remote, "last"), b"")
        assert [_stored(files.join(remote, name)) for name in names] == seen[0]


def _operate(files, kind, path, other, data):
    if kind == "put":
        _put(files, path, data)
    elif kind == "append":
        with files.open(path, "ab") as file:
            file.write(data)
    elif kind == "truncate":
        files.truncate(path, len(data))
    elif kind == "remove":
        files.remove(path)
    elif kind == "move" and files.isfile(path) and path != other:
        files.move(path, other)
    elif kind == "all":
        files.remove_all(path)
