from __future__ import annotations

import pytest
import torch

from scepter_digits import DigitsDataset

PARTS = ("train", "eval", "test")


def _images(part: str, seed: int = 0) -> set[bytes]:
    return {image.numpy().tobytes() for image in DigitsDataset(part, seed).images}


def test_parts_hold_every_image_once() -> None:
    sizes = {part: len(DigitsDataset(part)) for part in PARTS}
    assert sizes == {"train": 1258, "eval": 270, "test": 269}
    everything = torch.cat([DigitsDataset(part).images for part in PARTS]).flatten(1)
    assert len(torch.unique(everything, dim=0)) == 1797


def test_a_sample_is_an_image_from_0_to_1_and_its_label() -> None:
    sample = DigitsDataset("eval")[0]
    assert set(sample) == {"image", "label"}
    assert sample["image"].shape == (1, 8, 8)
    assert sample["image"].dtype is torch.float32
    assert sample["label"].shape == ()
    assert sample["label"].dtype is torch.int64
    images = DigitsDataset("train").images
    assert (images.min(), images.max()) == (0.0, 1.0)


@pytest.mark.parametrize("part", PARTS)
def test_every_digit_has_the_same_share_in_each_part(part: str) -> None:
    dataset = DigitsDataset(part)
    shares = torch.bincount(dataset.labels, minlength=10) / len(dataset)
    assert shares.min() > 0.09
    assert shares.max() < 0.11


def test_the_split_is_fixed_and_depends_on_its_seed() -> None:
    assert _images("test") == _images("test")
    assert _images("test") != _images("test", seed=1)


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ValueError, match="split must be one of train, eval, test, not 'all'"):
        DigitsDataset("all")  # type: ignore[arg-type]
