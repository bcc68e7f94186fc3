from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from scepter_core import ConfigError
from scepter_pylm import CHARACTERS, CharGPT, decode, encode


def small(**keys: int) -> CharGPT:
    torch.manual_seed(0)
    return CharGPT(**{"width": 16, "layers": 2, "heads": 2, "context": 8, **keys})


def test_the_loss_is_that_of_each_next_character() -> None:
    model, text = small(), torch.randint(len(CHARACTERS), (3, 9))
    outputs = model(text=text)
    expected = functional.cross_entropy(model.logits(text[:, :8]).transpose(1, 2), text[:, 1:])
    assert outputs["loss"].item() == pytest.approx(expected.item(), rel=1e-6)
    assert outputs["bits"].item() == pytest.approx(expected.item() / math.log(2), rel=1e-6)
    assert abs(outputs["bits"].item() - math.log2(97)) < 0.1  # untrained, it knows nothing


def test_no_character_sees_those_behind_it() -> None:
    model, text = small(), torch.randint(len(CHARACTERS), (1, 8))
    other = text.clone()
    other[0, 5] = (other[0, 5] + 1) % len(CHARACTERS)
    before, after = model.logits(text), model.logits(other)
    assert torch.allclose(before[:, :5], after[:, :5], atol=1e-6)
    assert not torch.allclose(before[:, 5:], after[:, 5:], atol=1e-3)


def test_embedding_and_head_are_one() -> None:
    model = small()
    assert model.head.weight is model.embed.weight
    assert [name for name, _ in model.named_parameters() if "head" in name] == []


def test_a_completion_begins_with_the_prompt_also_one_that_is_longer_than_the_context() -> None:
    model = small().eval()
    for prompt in ("", "x", "import os.path"):
        text = model.complete(prompt, 5)
        assert text.startswith(prompt)
        assert len(text) == len(prompt) + 5


def test_a_completion_follows_from_its_seed_and_leaves_the_streams_alone() -> None:
    model = small().eval()
    before = torch.get_rng_state()
    texts = [model.complete("x", 20, seed=seed) for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]
    assert torch.equal(torch.get_rng_state(), before)


def test_a_sure_model_completes_what_it_learned() -> None:
    model, text = small(), encode("\nabcabcab")[None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        model(text)["loss"].backward()
        optimizer.step()
    assert model.complete("abc", 5) == decode(text[0, 1:])


def test_a_sample_is_offered_once_an_eval_and_never_in_training() -> None:
    model, text = small(sample=4), torch.randint(len(CHARACTERS), (2, 9))
    offered: list[dict[str, str]] = []
    model.register_probe = offered.append  # type: ignore[method-assign, assignment]
    model.train()(text)
    assert offered == []
    for _ in range(2):
        model.eval()
        model(text), model(text)
        model.train()
    assert [(set(probe), probe["sample"][:4], len(probe["sample"])) for probe in offered] == [({"sample"}, "def ", 8)] * 2


def test_a_width_that_the_heads_cannot_share_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"SOLVER\.MODEL: WIDTH is no multiple of HEADS\n    found:    16, 3"):
        small(heads=3)
