"""A transformer over characters, small enough for a CPU."""

from __future__ import annotations

import math

import torch
from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from scepter_core import ConfigError, Probing, Problem
from scepter_pylm.text import CHARACTERS, decode, encode


class Block(nn.Module):
    """Causal attention and a feed-forward layer, each behind a norm and added to its input (pre-norm)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """N×T×width to the same."""
        queries, keys, values = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.mix(self.norm1(x)).chunk(3, dim=-1)
        )
        seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.feed(self.norm2(x))  # type: ignore[no-any-return]


class CharGPT(Probing, nn.Module):
    """Predicts each character from those before it.

    Once in every eval it offers a sample of its own to ProbeDataHook.

    Args:
        width: of the residual stream.
        layers, heads: blocks, and heads of each block's attention.
        context: the longest text it sees.
        sample: characters of the sample; 0: none.

    Raises:
        ConfigError: the width cannot be divided among the heads.
    """

    def __init__(
        self,
        width: PositiveInt = 192,
        layers: PositiveInt = 4,
        heads: PositiveInt = 6,
        context: PositiveInt = 128,
        sample: NonNegativeInt = 160,
    ) -> None:
        super().__init__()
        if width % heads:
            hint = "lower HEADS, or take a WIDTH that can be divided by it"
            raise ConfigError([Problem("WIDTH is no multiple of HEADS", "SOLVER.MODEL", found=f"{width}, {heads}", hint=hint)])
        self.context, self.sample = context, sample
        self.embed, self.places = nn.Embedding(len(CHARACTERS), width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(CHARACTERS), bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.embed.weight  # tied
        self._shows = False

    def train(self, mode: bool = True) -> CharGPT:
        """As ever; an eval that begins shows a sample once."""
        self._shows = not mode
        super().train(mode)
        return self

    def logits(self, text: Tensor) -> Tensor:
        """From N×T characters to N×T×characters."""
        x = self.embed(text) + self.places.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]

    def forward(self, text: Tensor) -> dict[str, Tensor]:
        """The loss of N windows of T + 1 characters: mean cross entropy in nats, and the same in bits a character."""
        logits = self.logits(text[:, :-1])
        loss = functional.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten())
        if self._shows and self.sample:
            self._shows = False
            self.register_probe({"sample": self.complete("def ", self.sample)})
        return {"loss": loss, "bits": loss.detach() / math.log(2)}

    @torch.no_grad()
    def complete(self, prompt: str, length: int, temperature: float = 0.7, seed: int = 0) -> str:
        """`prompt`, as the beginning of a line, and `length` characters more, drawn one by one.

        What it draws follows from `seed`; the global random streams are left alone.
        """
        draw = torch.Generator().manual_seed(seed)
        text = encode("\n" + prompt).to(self.embed.weight.device)
        for _ in range(length):
            last = self.logits(text[None, -self.context :])[0, -1].float().cpu()
            chosen = torch.multinomial(torch.softmax(last / temperature, dim=-1), 1, generator=draw)
            text = torch.cat([text, chosen.to(text.device)])
        return decode(text[1:])
