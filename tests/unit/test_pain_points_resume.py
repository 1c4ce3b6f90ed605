"""Pain points of resuming: for each piece of state that people's checkpoints lack, the naive run jumps, ours does not.

NVlabs/stylegan2-ada-pytorch #81, #69, #89, #108, #3; NVlabs/stylegan2-ada #30, #106, #6; PDillis/stylegan3-fun #5;
eps696/stylegan2ada #13; huangzh13/StyleGAN.pytorch #10: scores go from 50 to 90 after a resume, from 55 to 190.
Fade-in and the strength of adaptive augmentation have no place in the library yet; ours draws its augmentation by
position, so it has no state. On several ranks: test_checkpoints in tests/distributed.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paragan import build
from paragan.config import read_recipe
from paragan.game.state import state_of
from tests.tiny_run import train_and_read

HALF, IMAGES = 5, torch.randn(24, 8, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


class Naive:
    """The usual script: Adam, a decaying rate, an average with a ramp, a shuffled set, dropout, global draws."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.g = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8)).double()
        self.d = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 1)).double()
        self.average = copy.deepcopy(self.g)
        self.adam = [torch.optim.Adam(net.parameters(), 1e-2, betas=(0.5, 0.9)) for net in (self.g, self.d)]
        self.step, self.position, self.order = 0, 0, torch.Generator().manual_seed(11)
        self.shuffled = torch.randperm(len(IMAGES), generator=self.order)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            real = IMAGES[self.shuffled[self.position : self.position + 8]]
            self.position = (self.position + 8) % len(IMAGES)
            fake = self.g(torch.randn(8, 4, dtype=torch.float64))
            self._turn(1, (F.softplus(-self.d(real)) + F.softplus(self.d(fake.detach()))).mean())
            self._turn(0, F.softplus(-self.d(fake)).mean())
            self.step += 1
            with torch.no_grad():
                for mine, theirs in zip(self.average.parameters(), self.g.parameters(), strict=True):
                    mine.lerp_(theirs, max(0.1, 1 / self.step))

    def _turn(self, side: int, loss: torch.Tensor) -> None:
        self.adam[side].zero_grad()
        loss.backward()
        for group in self.adam[side].param_groups:
            group["lr"] = 1e-2 * (1 - self.step / 20)
        self.adam[side].step()

    def save(self) -> dict[str, Any]:
        return copy.deepcopy(
            {
                "weights": [self.g.state_dict(), self.d.state_dict()],
                "Adam's moments": [adam.state_dict() for adam in self.adam],
                "the average": self.average.state_dict(),
                "the step": self.step,
                "the place in the data": (self.position, self.shuffled),
                "the draws": torch.get_rng_state(),
            }
        )

    def resume(self, saved: dict[str, Any]) -> None:
        put = {
            "weights": lambda v: (self.g.load_state_dict(v[0]), self.d.load_state_dict(v[1])),
            "Adam's moments": lambda v: [adam.load_state_dict(s) for adam, s in zip(self.adam, v, strict=True)],
            "the average": self.average.load_state_dict,
            "the step": lambda v: setattr(self, "step", v),
            "the place in the data": lambda v: (setattr(self, "position", v[0]), setattr(self, "shuffled", v[1])),
            "the draws": torch.set_rng_state,
        }
        self.average.load_state_dict(saved["weights"][0])
        for name, value in saved.items():
            put[name](value)

    def tensors(self) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for net in (self.g, self.d, self.average) for p in net.parameters()])


def naive_jump(lost: str) -> float:
    """How far a run that stopped half-way and lost something ends from one that never stopped."""
    straight = Naive(0)
    straight.train(HALF)
    saved = straight.save()
    straight.train(HALF)
    other = Naive(1)
    other.resume({name: value for name, value in saved.items() if name != lost})
    other.train(HALF)
    return float((other.tensors() - straight.tensors()).abs().max())


SETTINGS = (
    "data.size=8", "model.width=8", "model.latent=16", "train.batch=16", "every.sample_kimg=0", "every.save_kimg=0",
    "evaluation.features=null", "augment=diffaugment", "g.schedule={name: linear, end: 20}", "every.keep=2",
    "d.schedule={name: cosine, warmup: 3, end: 20}", "g.ema={half_life_kimg: 0.02, start_kimg: 0.04}",
    "penalties=[{name: r1, weight: 1.0, interval: 3}]",
)  # fmt: skip


@pytest.fixture(scope="module")
def ours(tmp_path_factory) -> SimpleNamespace:
    """A run of 10 steps, one stopped after 5, and what a new process made of that; with what each told."""
    folder = tmp_path_factory.mktemp("resume")

    def trainer(name: str, steps: int):
        config = read_recipe("digits", [*SETTINGS, f"train.kimg={steps * 0.016}"])
        return build.trainer(config, folder / name, print, lambda: False)

    def told(run) -> list[dict[str, float]]:
        return train_and_read(run)[0]

    straight = trainer("straight", 2 * HALF)
    expected = told(straight)[HALF:]
    told(trainer("stopped", HALF))
    torch.manual_seed(99)  # another process's global generator
    resumed = trainer("stopped", 2 * HALF)
    assert resumed.resume()
    return SimpleNamespace(straight=straight, expected=expected, resumed=resumed, told=told(resumed))


def held(run, prefix: str) -> dict[str, torch.Tensor]:
    states = {name: state_of(player)[0].tensors for name, player in run.players.items()}
    return {f"{side} {k}": v for side, of in states.items() for k, v in of.items() if k.startswith(prefix)}


def equal(ours: SimpleNamespace, prefix: str) -> bool:
    one, other = held(ours.straight, prefix), held(ours.resumed, prefix)
    return bool(one) and one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_a_naive_resume_that_keeps_everything_is_exact():
    """What follows is about what is lost, not about the script."""
    assert naive_jump("nothing") == 0


@pytest.mark.parametrize(
    ("lost", "kept"),
    [
        ("Adam's moments", lambda ours: equal(ours, "optimizer/")),
        ("the average", lambda ours: equal(ours, "ema/")),
        ("the step", lambda ours: equal(ours, "player/") and ours.straight.clock == ours.resumed.clock),
        ("the place in the data", lambda ours: ours.straight.batches.position == ours.resumed.batches.position == 10),
        ("the draws", lambda ours: len(ours.told) == HALF and ours.told == ours.expected),
    ],
)
def test_a_resumed_run_jumps_because_it_lost(ours, lost, kept):
    """See the top of this file."""
    assert naive_jump(lost) > 1e-5
    assert kept(ours)
    assert equal(ours, "net/")


def test_a_rate_that_starts_anew_after_a_resume(ours):
    """The same threads: schedule, average's ramp and the penalty's turn follow counters that a checkpoint must hold."""
    fresh, rates = Naive(0), []
    fresh.train(1)
    for run in (ours.straight, ours.resumed):
        rates.append([float(p.optimizer.param_groups[0]["lr"]) for p in run.players.values()])
    assert fresh.adam[0].param_groups[0]["lr"] == 1e-2
    assert rates[0] == rates[1]
    assert all(0 < rate < 1e-3 for rate in rates[1])
    due = [number for number, words in enumerate(ours.told, start=HALF) if "d/loss/r1" in words]
    assert due == [6, 9]
