"""Files that are damaged, foreign or hostile: told, and the model is as it was."""

from __future__ import annotations

import json
import random
import struct

import pytest
import torch
from safetensors.torch import save

from scepter_core import RunError
from scepter_safetensors import load_into


@pytest.fixture
def model():
    return torch.nn.Linear(3, 2)


WHOLE = save({"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.arange(2.0)}, {"format": "pt", "step": "4"})


def with_header(header, payload=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + payload


def tensor(shape, offsets, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def refused(model, path):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RunError) as caught:
        load_into(model, path)
    assert str(path) in str(caught.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x00" * 7, b"PK\x03\x04" + b"\x00" * 40, b"\xff" * 64,
        struct.pack("<Q", 2**40) + b"{}",  # a header of a terabyte
        with_header(b"{" * 1000), with_header([]), with_header({"weight": 3}),
        with_header({"weight": tensor([2**40], [0, 2**42])}),  # four terabytes that are not there
        with_header({"weight": tensor([2, 3], [0, 8])}, bytes(8)),
        with_header({"weight": tensor([2, 3], [0, 24]), "bias": tensor([2], [16, 24])}, bytes(24)),  # one in the other
        with_header({"weight": tensor([2, 3], [0, 24], "F99"), "bias": tensor([2], [24, 32])}, bytes(32)),
        with_header({"weight": tensor([2**40, 0], [0, 0]), "bias": tensor([2], [0, 8])}, bytes(8)),  # of another shape
        WHOLE[:-1], WHOLE[: len(WHOLE) // 2], WHOLE + b"\x00",
    ],
    ids=[f"case{number}" for number in range(16)],
)  # fmt: skip
def test_what_is_no_file_of_weights(model, tmp_path, data):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    refused(model, path)


def test_what_is_no_file_at_all(model, tmp_path):
    refused(model, tmp_path / "missing.safetensors")
    refused(model, tmp_path)


def test_a_damaged_file_is_refused_or_is_one_with_other_numbers(model, tmp_path):
    """The format has no checksums: of a number that changed nobody can know, of everything else one can."""
    chance, path, refusals = random.Random(0), tmp_path / "damaged.safetensors", 0
    for _ in range(400):
        damaged = bytearray(WHOLE)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged[: chance.choice([len(damaged), chance.randrange(len(damaged))])])
        try:
            assert load_into(model, path)
        except RunError as error:
            assert str(path) in str(error)
            refusals += 1
    assert 250 < refusals < 400
