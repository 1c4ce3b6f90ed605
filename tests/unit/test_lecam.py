"""LeCam regularisation against its plainest form over several updates, in float64; it survives a stop."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from paragan.core.outputs import DiscriminatorOutput, Outputs
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.parallel import none
from paragan.penalties import lecam
from paragan.schemes import extragradient, synchronous
from tests.laws import small_gan
from tests.one_turn import BATCH, nets, play, turn

LOGITS = torch.randn(5, 2, BATCH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def called(penalty, real, fake):
    part = PenaltyContext(None, turn(Side.D).feed, Outputs(DiscriminatorOutput(fake), DiscriminatorOutput(real)), None)
    return penalty(part)


def naive(options):
    """Values of every update, as lists."""
    held, found = {}, []
    for updates, (real, fake) in enumerate(LOGITS.tolist(), 1):
        for name, values in (("real", real), ("fake", fake)):
            share = max(1 - options.decay, 1 / updates)
            held[name] = held.get(name, 0.0) + share * (sum(values) / BATCH - held.get(name, 0.0))
        row = []
        for r, f in zip(real, fake, strict=True):
            above, below = r - held["fake"], held["real"] - f
            row.append(options.weight * (above**2 + below**2) * (updates > options.warmup))
        found.append(row)
    return found


@pytest.mark.parametrize("wanted", [{}, {"decay": 0.6}, {"warmup": 2}, {"warmup": 4, "decay": 0.5}])
def test_it_is_the_papers_over_several_updates(wanted):
    options = lecam.Options(weight=0.7, **wanted)
    penalty = lecam.Penalty(options)
    found = [called(penalty, real, fake).tolist() for real, fake in LOGITS]
    torch.testing.assert_close(found, naive(options), rtol=1e-12, atol=1e-13)


def test_gradients_take_the_means_as_given():
    pair, penalty = nets(), lecam.Penalty(lecam.Options(weight=0.5))
    played = turn(Side.D, penalty)
    d, feed = pair[Side.D], played.feed
    real = [d(x[None], y[None]).logits_B[0] for x, y in zip(feed.real.image, feed.real.label, strict=True)]
    fake = [d(x[None], y[None]).logits_B[0] for x, y in zip(feed.fakes[0], feed.label, strict=True)]
    of_real, of_fake = (math.fsum(v.item() for v in values) / BATCH for values in (real, fake))
    loss = sum(0.5 * ((r - of_fake) ** 2 + (f - of_real) ** 2) for r, f in zip(real, fake, strict=True)) / BATCH
    slopes = torch.autograd.grad(loss, list(d.parameters()), allow_unused=True)
    _, grads = play(played, pair)
    slopes = [torch.zeros_like(g) if s is None else s for s, g in zip(slopes, grads.values(), strict=True)]
    torch.testing.assert_close([*grads.values()], slopes, rtol=1e-9, atol=1e-12)
    assert max(slope.abs().max() for slope in slopes) > 1e-4


def test_logits_that_are_not_finite_are_not_remembered():
    penalty = lecam.Penalty(lecam.Options())
    called(penalty, *LOGITS[0])
    before = {name: value.clone() for name, value in penalty.state.items()}
    called(penalty, LOGITS[1][0] * math.nan, LOGITS[1][1])
    assert penalty.state == before
    called(penalty, *LOGITS[1])
    torch.testing.assert_close(penalty.state["real"], LOGITS[:2, 0].mean(), rtol=1e-12, atol=0)


def test_what_it_remembers_is_on_the_way_of_no_gradient():
    """Two updates before either backward, as extragradient plays."""
    penalty = lecam.Penalty(lecam.Options())
    leaves = [logits.clone().requires_grad_() for logits in LOGITS[:2]]
    losses = [called(penalty, *leaf).sum() for leaf in leaves]
    sum(losses).backward()
    assert all(leaf.grad.isfinite().all() for leaf in leaves)


SETTINGS = [
    "data.size=8", "model.width=8", "model.latent=8", "train.batch=16", "every.sample_kimg=1",
    "every.save_kimg=0.032", "evaluation.features=null", "penalties=[{name: lecam, weight: 0.3, decay: 0.5}]",
]  # fmt: skip


@pytest.mark.parametrize("step", [synchronous.step, extragradient.Scheme().step])
def test_a_custom_loop_keeps_its_state_with_d(step):
    """A game that a program makes attaches the state of its penalties by itself."""
    seats = [small_gan.player(side, none.Strategy()) for side in Side]
    gan = replace(small_gan.game(*seats), d_penalties=(lecam.Penalty(lecam.Options()),))
    assert set(gan.d.state) == {"lecam/real", "lecam/fake", "lecam/updates"}
    stream = small_gan.batches()
    for _ in range(5):
        step(gan, stream)
    assert int(gan.d.state["lecam/updates"]) == 5
