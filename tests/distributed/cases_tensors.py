"""A run over named tensors, with conditions of several kinds, on ranks: texts with a mask, and a size."""

from pathlib import Path

import torch
from torch import nn

import paragan as pg
from paragan import build
from paragan.core.dist import World

ROWS, LENGTH, WIDTH, SIZES, BATCH, STEPS = 24, 5, 3, 4, 8, 4
LATENT = 2
ADAM = {"lr": 1e-2, "arguments": {"eps": 1e-4}}
PAIR = {
    "none": {},
    "ddp": {"g.strategy": "ddp", "d.strategy": "ddp"},
    "zero3": {"g.strategy": "zero3", "d.strategy": "zero3"},
}


def tensors(garbage: float = 0.0) -> dict[str, torch.Tensor]:
    """Points, texts (L, E) whose padding holds garbage, their mask, and a size."""
    draws = torch.Generator().manual_seed(3)
    words = torch.randn(ROWS, LENGTH, WIDTH, generator=draws, dtype=torch.float64)
    mask = torch.arange(LENGTH) < torch.randint(1, LENGTH + 1, (ROWS, 1), generator=draws)
    size = torch.randint(SIZES, (ROWS,), generator=draws)
    return {
        "point": point_of(words, mask, size),
        "words": torch.where(mask[..., None], words, garbage),
        "mask": mask,
        "size": size,
    }


def point_of(words, mask, size):
    """Return the point that belongs to a text and a size."""
    return words.masked_fill(~mask[..., None], 0).sum(1)[:, :2] + size[:, None]


def ragged(tensors: dict[str, torch.Tensor]) -> dict:
    """The samples with texts of their own length, in place of a mask."""
    texts = [text[mask] for text, mask in zip(tensors["words"], tensors["mask"], strict=True)]
    return {"point": tensors["point"], "words": texts, "size": tensors["size"]}


class Text(nn.Module):
    """Mean of the words that the mask has, and an embedding of the size."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Linear(WIDTH, 6)
        self.sizes = nn.Embedding(SIZES, 6)

    def forward(self, words, mask, size):
        read = self.words(words).tanh().masked_fill(~mask[..., None], 0)
        return read.sum(1) / mask.sum(1, keepdim=True) + self.sizes(size)


class Maker(nn.Module):
    latent = LATENT

    def __init__(self) -> None:
        super().__init__()
        self.text = Text()
        self.out = nn.Linear(6 + LATENT, 2)

    def forward(self, words, mask, size, z):
        return self.out(torch.cat([self.text(words, mask, size), z], 1))


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.text = Text()
        self.out = nn.Linear(6 + 2, 1)

    def forward(self, point, words, mask, size):
        return self.out(torch.cat([self.text(words, mask, size), point], 1))


class RaggedMaker(Maker):
    def forward(self, words, words_mask, size, z):
        return super().forward(words, words_mask, size, z)


class RaggedCritic(Critic):
    def forward(self, point, words, words_mask, size):
        return super().forward(point, words, words_mask, size)


class Copier(RaggedMaker):
    """A generator of the point that belongs to its text, and of no other."""

    def forward(self, words, words_mask, size, z):
        return point_of(words, words_mask, size) + 0 * super().forward(words, words_mask, size, z)


class Checker(RaggedCritic):
    """A discriminator that fails if it is shown a point next to another's text."""

    def forward(self, point, words, words_mask, size):
        assert (point - point_of(words, words_mask, size)).abs().max() < 1e-9, "a point of another text"
        return super().forward(point, words, words_mask, size)


class FixedCopier(Copier):
    def forward(self, words, mask, size, z):
        return super().forward(words, mask, size, z)


class FixedChecker(Checker):
    def forward(self, point, words, mask, size):
        return super().forward(point, words, mask, size)


NETS = {"trained": (Maker, Critic), "ragged": (RaggedMaker, RaggedCritic), "checked": (FixedCopier, FixedChecker)}
NETS["checked ragged"] = (Copier, Checker)


def near(outputs, inputs):
    return (outputs.images - inputs.real.tensors["point"]).square()


def trainer(
    folder, garbage: float = 0.0, parts: int = 1, pair: str = "none", nets: str = "trained", buckets=(), **settings
) -> pg.Trainer:
    torch.manual_seed(0)
    made = [net().double() for net in NETS[nets]]
    data = tensors(garbage)
    data = ragged(data) if "ragged" in nets else data
    chosen = {
        "train.batch": BATCH, "train.kimg": STEPS * BATCH / 1000, "every.save_kimg": 0,
        "g.optimizer": ADAM, "d.optimizer": ADAM, "g.micro_batches": parts, "d.micro_batches": parts,
        "g.ema.half_life_kimg": 0.02, "penalties": ["r1"], **PAIR[pair],
    }  # fmt: skip
    terms = [pg.Term(name="near", function=near, weight=0.5)]
    return pg.Trainer(*made, data, terms=terms, settings={**chosen, **settings}, out=folder, buckets=buckets)


def train(world: World, folder: str, pair: str, parts: int, steps: int = STEPS, **chosen) -> int:
    """Train to `steps` on these ranks, from the newest checkpoint if any, and save; the steps that were trained."""
    made = trainer(folder, parts=parts, pair=pair, **{"train.kimg": steps * BATCH / 1000, **chosen})
    game = made._game(world)
    loop = build.trainer(made.config, Path(folder), print, lambda: False, world=world, model=game)
    world.barrier()
    loop.resume()
    before = loop.clock.step
    for _ in loop.run():
        pass
    return loop.clock.step - before
