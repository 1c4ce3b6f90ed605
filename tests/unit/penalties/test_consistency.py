"""Consistency regularisation against a loop over single images, in float64, gradients included."""

import pytest
import torch

from paragan.core import rng
from paragan.core.outputs import DiscriminatorOutput, Outputs
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Rows, Side, TurnInputs
from paragan.game.network import CalledNetwork
from paragan.models import dcgan
from paragan.penalties import consistency
from tests.one_turn import BATCH, SEED, SHAPE, assert_plain, nets, play, turn


def naive(x, draws):
    """One image (C, H, W): mirrored or not, then moved by up to an eighth; what comes in is zero."""
    mirror, down, right = draws.tolist()
    side, most = x.shape[1], x.shape[1] // 8
    down, right = (int(draw * (2 * most + 1)) - most for draw in (down, right))
    found = torch.zeros_like(x)
    for i in range(side):
        for j in range(side):
            if 0 <= i - down < side and 0 <= j - right < side:
                column = j - right
                found[:, i, j] = x[:, i - down, side - 1 - column if mirror < 0.5 else column]
    return found


def by_hand(played, d, weight, fake_weight):
    feed, values = played.feed, []
    draws = {kind: rng.uniform(SEED, f"consistency/{kind}", feed.rows, (3,)) for kind in ("real", "fake")}
    for row in range(BATCH):
        value = 0
        for kind, w, x, y in (
            ("real", weight, feed.real.image, feed.real.label),
            ("fake", fake_weight, feed.fakes[0], feed.label),
        ):
            varied = naive(x[row], draws[kind][row])
            of = [d(image[None], y[row : row + 1]).logits_B[0] for image in (x[row], varied)]
            value = value + w * (of[0] - of[1]) ** 2
        values.append(value)
    return torch.stack(values)


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("weights", [(0.5, 0.0), (0.5, 0.2)], ids=["cr", "bcr"])
def test_it_is_the_papers(weights, parts):
    pair = nets()
    penalty = consistency.Penalty(consistency.Options(weight=weights[0], fake_weight=sum(weights[1:])))
    played = turn(Side.D, penalty)
    expected = by_hand(played, pair[Side.D], *weights)
    assert_plain(played, pair, expected, parts, rtol=1e-10)


def test_a_norm_that_mixes_sees_either_kind_by_itself():
    """As D's own turn does: real and fake never share statistics."""
    pair = nets()
    pair[Side.D] = dcgan.Discriminator(dcgan.Options(width=4), SHAPE).double()
    seen = []
    pair[Side.D].register_forward_hook(lambda net, inputs, output: seen.append(len(inputs[0])))
    play(turn(Side.D, consistency.Penalty(consistency.Options(1.0, fake_weight=1.0))), pair)
    assert seen == [BATCH] * 4


def test_a_pair_is_varied_together():
    """D judges an image by what it was made from: both are mirrored and moved alike."""
    seen = []

    class Pairs(torch.nn.Module):
        def forward(self, x, y, condition):
            seen.append((x, condition))
            return (x * condition).sum((1, 2)) * torch.ones((), requires_grad=True)

    rows = Rows(step=0, first=0, count=BATCH, total=BATCH)
    x = rng.normal(0, "x", rows, SHAPE)
    feed = turn(Side.D).feed
    real = type(feed.real)(rows, {"image": x, "condition": x})
    net = Pairs()
    outputs = Outputs(
        fake=DiscriminatorOutput(torch.zeros(BATCH, 8)), real=DiscriminatorOutput(net(x, None, x)), images=x
    )
    part = PenaltyContext(
        network=CalledNetwork(module=net),
        feed=TurnInputs(rows=rows, seed=0, tensors={"condition": x}, real=real, fakes=(x,)),
        outputs=outputs,
        input_gradient=lambda out, x: out,
    )
    values = consistency.Penalty(consistency.Options(1.0, fake_weight=1.0))(part)
    assert values.shape == (BATCH,)
    assert len(seen) == 2 and torch.equal(*seen[1]) and not torch.equal(seen[1][0][:BATCH], x)
