"""What becomes of each kind of value, and of each name."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch


def image(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_numbers_and_text(one):
    values = {
        "int": 3,
        "float": 0.25,
        "flag": True,
        "nothing": None,
        "tensor": torch.tensor(1.5, requires_grad=True),
        "bf16": torch.tensor(0.5, dtype=torch.bfloat16),
        "integer": torch.tensor(7),
        "numpy": np.float32(0.5),
        "zero_dim": np.array(4),
        "text": "a cat\non a mat",
        "文字": "猫",
        "list": ["a", 1, torch.tensor(2.0)],
        "nested": {"a": [1, 2], 3: "b"},
        "empty": [],
    }
    probed = one(values)
    assert probed.files() == ["probe.json"]
    assert probed.index() == {
        "int": 3,
        "float": 0.25,
        "flag": True,
        "nothing": None,
        "tensor": 1.5,
        "bf16": 0.5,
        "integer": 7,
        "numpy": 0.5,
        "zero_dim": 4,
        "text": "a cat\non a mat",
        "文字": "猫",
        "list": ["a", 1, 2.0],
        "nested": {"a": [1, 2], "3": "b"},
        "empty": [],
    }
    (line,) = [line for line in probed.lines if "probe train step 1" in line]
    assert " | text a cat on a mat | 文字 猫 | " in line


def test_numbers_that_json_does_not_have(one):
    values = {"nan": math.nan, "up": torch.tensor(math.inf), "down": [np.float64(-math.inf)]}
    assert one(values).index() == {"nan": "NaN", "up": "Infinity", "down": ["-Infinity"]}


def test_text_that_no_utf8_has_and_text_without_end(one):
    probed = one({"half": "\ud800", "long": "x" * 5000})
    assert probed.index() == {"half": "\ud800", "long": "x" * 5000}
    assert max(map(len, probed.lines)) < 1000


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8])
def test_one_image(one, channels, kind):
    pixels = (image(channels, 5, 7) * 255).round()
    values = pixels.to(kind) if kind is torch.uint8 else (pixels / 255).to(kind)
    probed = one({"picture": values})
    assert probed.files() == ["picture.png", "probe.json"]
    picture = probed.picture("picture.png")
    assert (picture.size, picture.mode) == ((7, 5), {1: "L", 3: "RGB", 4: "RGBA"}[channels])
    expected = values if kind is torch.uint8 else (values.float() * 255).round()
    found = np.asarray(picture).reshape(5, 7, channels).transpose(2, 0, 1)
    assert np.array_equal(found, expected.to(torch.uint8).numpy())
    assert probed.index()["picture"] == {"file": "picture.png", "shape": [channels, 5, 7], "dtype": str(kind)}


def test_a_grid(one):
    images = (image(5, 3, 4, 6) * 255).to(torch.uint8)
    picture = np.asarray(one({"batch": images}).picture("batch.png"))
    assert picture.shape == (2 * 4 + 2, 3 * 6 + 2 * 2, 3)  # three columns, two rows, two pixels between
    for number in range(5):
        top, left = number // 3 * 6, number % 3 * 8
        assert np.array_equal(picture[top : top + 4, left : left + 6], images[number].permute(1, 2, 0).numpy())
    rest = picture.copy()
    for number in range(5):
        top, left = number // 3 * 6, number % 3 * 8
        rest[top : top + 4, left : left + 6] = 128
    assert (rest == 128).all()


@pytest.mark.parametrize(("number", "size"), [(1, (4, 4)), (2, (10, 4)), (4, (10, 10)), (9, (16, 16)), (10, (22, 16))])
def test_the_shape_of_a_grid(one, number, size):
    assert one({"batch": torch.zeros(number, 1, 4, 4)}).picture("batch.png").size == size


def test_between_transparent_images_it_is_transparent(one):
    picture = np.asarray(one({"batch": torch.ones(2, 4, 3, 3)}).picture("batch.png"))
    assert (picture[:, 3:5] == 0).all()
    assert (picture[:, :3] == 255).all()


@pytest.mark.parametrize(
    "value",
    [
        torch.full((3, 4, 4), 1.01),
        torch.full((3, 4, 4), -0.01),
        torch.full((3, 4, 4), math.nan),
        torch.zeros(2, 4, 4),
        torch.zeros(3, 4),
        torch.zeros(1, 3, 4, 4, 4),
        torch.zeros(3, 0, 4),
        torch.zeros(0, 3, 4, 4),
        torch.zeros(3, 4, 4, dtype=torch.int64),
        torch.zeros(3, 4, 4, dtype=torch.bool),
        torch.arange(6.0).reshape(2, 3).t(),
        torch.tensor([1 + 2j]).conj(),
        torch.zeros(5, dtype=torch.float16),
    ],
    ids=lambda value: f"{tuple(value.shape)}{value.dtype}",
)
def test_tensors_that_are_no_images(one, value):
    probed = one({"t": value})
    assert probed.files() == ["probe.json", "t.npy"]
    found = probed.array("t.npy")
    assert np.array_equal(found, value.resolve_conj().numpy(), equal_nan=not value.is_complex())
    assert found.dtype == value.resolve_conj().numpy().dtype


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_small_floats_are_float32_arrays(one, kind):
    probed = one({"t": torch.tensor([1.5, -2.0]).to(kind)})
    assert probed.array("t.npy").dtype == np.float32
    assert probed.array("t.npy").tolist() == [1.5, -2.0]
    assert probed.index()["t"]["dtype"] == str(kind)


def test_a_sparse_tensor(one):
    assert one({"t": torch.eye(2).to_sparse()}).array("t.npy").tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize(
    "array", [np.zeros((3, 4, 4), np.uint8), np.array(["a", "bc"]), np.asfortranarray(np.eye(2, 3)), np.zeros(0)]
)
def test_numpy_arrays(one, array):
    probed = one({"a": array})
    assert probed.files() == ["a.npy", "probe.json"]
    assert np.array_equal(probed.array("a.npy"), array)
    assert probed.index()["a"] == {"file": "a.npy", "shape": list(array.shape), "dtype": str(array.dtype)}


def test_lists_and_dicts_of_tensors(one):
    probed = one({"outs": [torch.zeros(2), torch.ones(3)], "maps": {"a": torch.zeros(1, 2, 2), "n": 1}, "outs.0": 5})
    assert probed.files() == ["maps.a.png", "outs.0.npy", "outs.1.npy", "probe.json"]
    assert probed.index()["maps.n"] == 1
    assert probed.index()["outs.0-2"] == 5


def test_unknown_kinds_are_named_once(probe):
    values = {"odd": object(), "objects": np.array([object()]), "meta": torch.zeros(2, device="meta"), "fine": 1}
    probed = probe(values, size=3)
    warnings = [line for line in probed.lines if line.startswith("WARNING")]
    assert warnings == [
        "WARNING probe odd is left out: a object cannot be shown",
        "WARNING probe objects is left out: a ndarray cannot be shown",
        "WARNING probe meta is left out: a Tensor cannot be shown",
    ]
    assert probed.index("train/step_3") == {"fine": 1}


def test_nothing_but_unknown_kinds(one):
    assert not one({"odd": object()}).folder.exists()


def test_names_stay_in_the_folder(one, tmp_path):
    names = [
        *("../../../out", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "a:b", "a\x00b", "a_b", "A_B", "CON ", "x" * 300),
        *("文/字", "猫" * 300, ".hidden", "probe.json", "a b", "ｅ́"),
    ]
    before = {path for path in tmp_path.rglob("*") if "run" not in path.parts}
    probed = one({name: torch.full((2,), float(number)) for number, name in enumerate(names)})
    index = probed.index()
    written = [index[name or "_"]["file"] for name in names]
    assert len({file.casefold() for file in written}) == len(names)
    assert probed.files() == sorted([*written, "probe.json"])
    for number, file in enumerate(written):
        assert probed.array(file).tolist() == [number, number]
        assert not set(file) & set('/\\:*?"<>|\x00 ')
        assert not file.startswith(".")
    assert {path for path in tmp_path.rglob("*") if "run" not in path.parts} == before
    assert {path.name for path in probed.folder.parent.iterdir()} == {"config.yaml", "probe", "std_log.txt"}


def test_a_name_that_is_fit_keeps_itself(one):
    index = one({"a/b": torch.zeros(2), "a_b": torch.ones(2), "a:b": torch.ones(2)}).index()
    assert {name: entry["file"] for name, entry in index.items()} == {
        "a/b": "a_b-2.npy",
        "a_b": "a_b.npy",
        "a:b": "a_b-3.npy",
    }
