"""Mistakes in the objects of `pg.Trainer`: one line each, before a file is written."""

import re
from numbers import Number

import numpy as np
import pytest
import torch

import paragan as pg
from paragan.game.prior import latent_of
from tests.unit.api.test_trainer import TINY, Critic, Maker, distance, tensors, trainer


class Wider(Maker):
    def forward(self, z, frames):
        return torch.cat([super().forward(z, frames)] * 2, 1)


class WrongName(Maker):
    def forward(self, z, frame):
        return super().forward(z, frame)


class Single(Maker):
    def forward(self, z, frames):
        return super().forward(z, frames).float()


class Nameless(pg.Penalty):
    def __call__(self, context):
        return context.outputs.fake.logits_B


class NoLatent(Maker):
    latent = None


class Alone(Maker):
    latent = 0

    def forward(self, z):
        return super().forward(z, z)


class Joined(Maker):
    latent = 0

    def forward(self, latent, frames):
        return torch.cat([latent, frames], 1)


class OtherName(Critic):
    def forward(self, sound, frames):
        return super().forward(sound, frames)


def shared():
    critic = Critic()
    maker = Maker()
    maker.critic = critic
    return {"g": lambda: maker, "d": lambda: critic}


MISTAKES = {
    "generator: forward takes 'frame', and a sample has only point, frames; rename one of them, or give "
    "the network its length (self.latent = 64) if frame is the latent": {"g": WrongName},
    'terms: Nameless has no name; set name = "my_term" in its class': {"terms": [Nameless()]},
    "generator: NoLatent has no attribute `latent`, the length of z; set it, for example self.latent = 64": {
        "g": NoLatent
    },
    "generator: Alone.forward takes z alone, and its attribute latent is 0, which means none; set the length of the "
    "latent, for example self.latent = 64": {"g": Alone},
    "discriminator: forward(sound, …) names the tensor that is real in a batch, and a sample has only point, frames; "
    "rename one of them, or pass sample=NAME": {"d": OtherName},
    "generator: forward(latent, frames) returned a tensor of (4, 4); return one of the shape of 'point' in a batch: "
    "(4, 2)": {"g": Wider},
    "generator and discriminator share weights; give each separate weights, since each has an optimiser": shared(),
    "data: tensors need one first axis, the samples; found point 20, frames 19": {
        "data": {**tensors(), "frames": tensors(19)["frames"]}
    },
    "a discriminator cannot be called 'half'; use another name, such as mpd": {"d": lambda: NamedHalf()},
    "data: a sample has a tensor 'z', the name of the latent that is drawn; rename it": {
        "data": {**tensors(), "z": torch.zeros(20)}
    },
    "evaluation.features=judge scores images (1 or 3, H, W) of uint8 or in [-1, 1], but a sample has point 2 float64, "
    "frames 4 float64; set it to null, and name evaluation.metrics for scores": {
        "settings": {**TINY, "evaluation.features": "judge"}
    },
}  # fmt: skip


class OfPoints(torch.nn.Linear):
    def __init__(self):
        super().__init__(2, 1)

    def forward(self, point):
        return super().forward(point)


class NamedHalf(dict):
    def __init__(self):
        super().__init__(half=Critic())

    def double(self):
        return self


@pytest.mark.parametrize("message", MISTAKES)
def test_mistake_is_one_line_before_a_file_is_written(message, tmp_path):
    with pytest.raises(pg.ParaganError) as raised:
        trainer(tmp_path / "run", **MISTAKES[message]).run()
    line = str(raised.value)
    assert line.partition(" (/")[0] == message
    assert "\n" not in line and not (tmp_path / "run").exists()


def test_a_generator_of_another_dtype_is_named_and_not_the_discriminator_that_fails(tmp_path):
    with pytest.raises(pg.ParaganError) as raised:
        trainer(tmp_path / "run", g=Single, d=OfPoints).run()
    problem = "generator: forward(latent, frames) returned torch.float32, and 'point' is torch.float64: return one"
    assert str(raised.value).startswith(problem) and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"interval": -2}, "interval=-2; pass an integer from 1"),
        ({"interval": 0}, "interval=0; pass an integer from 1"),
        ({"interval": 1.5}, "interval=1.5; pass an integer from 1"),
        ({"weight": float("nan")}, "weight=nan; pass a finite number"),
        ({"weight": float("inf")}, "weight=inf; pass a finite number"),
        ({"weight": None}, "weight=None; pass a finite number"),
        ({"weight": "0.1"}, "weight='0.1'; pass a finite number"),
    ],
)
def test_numbers_of_a_term_are_checked(tmp_path, arguments, problem):
    term = pg.Term(**{"name": "near", "function": distance, "weight": 1.0, **arguments})
    with pytest.raises(pg.ParaganError, match=f"^g: near has {re.escape(problem)}$"):
        trainer(tmp_path / "run", terms=[term]).run()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "latent", [-1, True, False, 4.0, 0.0, "4", (4,), np.int64(4), np.array(4), torch.tensor(4), float("nan")]
)
def test_a_latent_that_is_no_length_is_one_line(tmp_path, latent):
    g = Maker()
    g.latent = latent
    with pytest.raises(pg.ParaganError, match=r"^generator: the attribute latent of Maker is .*; it is the length"):
        trainer(tmp_path / "run", g=lambda: g)
    if isinstance(latent, Number | str):
        with pytest.raises(pg.ParaganError, match=r"^Estimator: the attribute latent of Maker is .*; set an integer"):
            pg.Estimator(g, Critic()).networks()
    with pytest.raises(pg.ParaganError, match=r"^model: Maker has latent=.*; set self.latent to the length of z"):
        latent_of(g)


def test_a_latent_of_0_is_named_where_the_generator_fails_without_one(tmp_path):
    with pytest.raises(pg.ParaganError, match="its attribute latent is 0, so that its latent is None: set the length"):
        trainer(tmp_path / "run", g=Joined).run()
