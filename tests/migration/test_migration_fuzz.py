"""`scepter convert` on damaged and forged files: one message, or a whole new file; never a traceback."""

from __future__ import annotations

import io
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from scepter_core.checkpoints import damage_of
from scepter_core.cli import main

STATE = {
    "epoch": 2,
    "total_iters": defaultdict(int, train=6),
    "state_dict": {"module.a": torch.arange(3.0), "module.b": torch.ones(2, 2).T},
    "checkpoint": {
        "state": {0: {"step": torch.tensor(6.0), "exp_avg": torch.ones(3)}},
        "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1]}],
    },
}
SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "drop", "insert", "copy"]), st.floats(0, 1), st.binary(min_size=1, max_size=6)
    ),
    min_size=1,
    max_size=4,
)


def _file(archive: bool) -> bytes:
    file = io.BytesIO()
    torch.save(STATE, file, _use_new_zipfile_serialization=archive)
    return file.getvalue()


WHOLE = {"archive": _file(True), "legacy": _file(False)}


def _edited(data: bytes, edits) -> bytes:
    for kind, share, some in edits:
        place = int(share * len(data))
        if kind == "flip":
            flipped = bytes(byte ^ mask for byte, mask in zip(data[place:], some, strict=False))
            data = data[:place] + flipped + data[place + len(some) :]
        elif kind == "cut":
            data = data[:place]
        elif kind == "drop":
            data = data[:place] + data[place + len(some) :]
        elif kind == "insert":
            data = data[:place] + some + data[place:]
        else:
            data = data[:place] + data[place : place + 20 * len(some)] + data[place:]
    return data


def _with_pickle(data: bytes, edit) -> bytes:
    """The archive with its pickle edited, and checksums that fit again."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, edit(content) if name.endswith("data.pkl") else content)
    return file.getvalue()


def _check(data: bytes, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = folder / "old.pth"
    old.write_bytes(data)
    for suffix in ("pth", "safetensors"):
        new = folder / f"new.{suffix}"
        status = main(["convert", str(old), str(new)])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        if status == 0:
            assert said.err == ""
            if suffix == "pth":
                assert damage_of(str(new)) is None
                state = torch.load(new, weights_only=True)
                assert all(isinstance(name, str) for name in state["model"])
            else:
                assert load_file(new)
            new.unlink()
        else:
            assert status in (1, 2)
            assert said.err.startswith("cannot ")
            assert said.out == ""
        assert [path.name for path in folder.iterdir()] == ["old.pth"]


@pytest.mark.parametrize("kind", WHOLE)
def test_the_whole_files_convert(tmp_path, capsys, kind):
    (tmp_path / "old.pth").write_bytes(WHOLE[kind])
    assert main(["convert", str(tmp_path / "old.pth"), str(tmp_path / "new.pth")]) == 0
    state = torch.load(tmp_path / "new.pth", weights_only=True)
    assert (list(state["model"]), state["epoch"], state["total_updates"]) == (["a", "b"], 2, 6)


@pytest.mark.parametrize("share", [n / 20 for n in range(20)])
def test_a_truncated_archive_is_damaged(tmp_path, capsys, share):
    whole = WHOLE["archive"]
    (tmp_path / "old.pth").write_bytes(whole[: int(share * len(whole))])
    assert main(["convert", str(tmp_path / "old.pth"), str(tmp_path / "new.pth")]) == 1
    assert "cannot read" in capsys.readouterr().err
    assert not (tmp_path / "new.pth").exists()


@pytest.mark.parametrize("share", [n / 40 for n in range(1, 40)])
def test_a_flipped_bit_of_a_weight_never_goes_unnoticed(tmp_path, capsys, share):
    with zipfile.ZipFile(io.BytesIO(WHOLE["archive"])) as archive:
        stored = next(info for info in archive.infolist() if info.filename.endswith("data/0"))
        content = archive.read(stored)
    place = WHOLE["archive"].index(content, stored.header_offset) + int(share * len(content))
    data = bytearray(WHOLE["archive"])
    data[place] ^= 1
    (tmp_path / "old.pth").write_bytes(bytes(data))
    assert main(["convert", str(tmp_path / "old.pth"), str(tmp_path / "new.pth")]) == 1
    assert "it is damaged (checksum of" in capsys.readouterr().err


@SETTINGS
@given(kind=st.sampled_from(sorted(WHOLE)), edits=EDITS)
def test_damaged_files(tmp_path_factory, capsys, kind, edits):
    _check(_edited(WHOLE[kind], edits), tmp_path_factory.mktemp("fuzz"), capsys)


@SETTINGS
@given(edits=EDITS)
def test_forged_files_with_checksums_that_fit(tmp_path_factory, capsys, edits):
    data = _with_pickle(WHOLE["archive"], lambda content: _edited(content, edits))
    _check(data, tmp_path_factory.mktemp("fuzz"), capsys)


@SETTINGS
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text() | st.just(torch.ones(2)),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(0, 3), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    key=st.sampled_from([*STATE, "model", "optimizer", "scaler", "format", "position", "total_iter"]),
    base=st.booleans(),
)
def test_strange_values_in_known_places(tmp_path_factory, capsys, value, key, base):
    file = io.BytesIO()
    torch.save({**(STATE if base else {}), key: value}, file)
    _check(file.getvalue(), tmp_path_factory.mktemp("fuzz"), capsys)
