"""Penalties by hand in float64: orthogonal, patches, corners; r1, r2 and gradient_penalty train in tests/numerics."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from paragan.augment import diffaugment, flow_noise
from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.outputs import DiscriminatorOutput, Outputs
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Side
from paragan.game.network import CalledNetwork
from paragan.layers.init import initialise
from paragan.layers.update_once import hold_updates
from paragan.models import dcgan, sngan
from paragan.parallel import none
from paragan.penalties import gradient_penalty, orthogonal, r1, r2
from tests.one_turn import BATCH, CLASSES, OPTIONS, SEED, assert_plain, nets, play, turn


def gradients(loss: torch.Tensor, net: nn.Module) -> dict[str, torch.Tensor]:
    found = torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)
    pairs = zip(net.named_parameters(), found, strict=True)
    return {name: torch.zeros_like(p) if g is None else g for (name, p), g in pairs}


class Scaled:
    """An augmentation whose slope differs from image to image."""

    def __call__(self, x, seed, stream, rows):
        return x * (1 + rng.uniform(seed, stream, rows, (1, 1, 1)).to(x))


AUGMENTED = {
    r1: ("real", lambda feed: feed.real.image),
    r2: ("fake", lambda feed: feed.fakes[0]),
    gradient_penalty: (
        "real",
        lambda feed: feed.fakes[0].lerp(
            feed.real.image, rng.uniform(SEED, "gradient_penalty", feed.rows, (1, 1, 1)).double()
        ),
    ),
}


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize(
    "augment",
    [Scaled(), diffaugment.Augment(diffaugment.Options()), flow_noise.Augment(flow_noise.Options())],
    ids=["scaled", "diffaugment", "flow_noise"],
)
@pytest.mark.parametrize("module", AUGMENTED, ids=["r1", "r2", "gradient_penalty"])
def test_input_gradient_penalties_differentiate_d_of_augmented_images(module, augment, parts):
    """D never sees an image as it is: the slope is that of D(T(x)), with the draws and the time of T."""
    pair, penalty = nets(), module.Penalty(module.Options(weight=0.5))
    channels = 1 + getattr(augment, "extra_channels", 0)
    d = pair[Side.D] = sngan.Discriminator(OPTIONS, (channels, 8, 8), CLASSES).double()
    initialise(d, SEED, "d")
    hold_updates(d)
    played = replace(turn(Side.D, penalty), augment=augment)
    kind, samples = AUGMENTED[module]
    x = samples(played.feed).detach().requires_grad_()
    labels = played.feed.real.label if module is not r2 else played.feed.label
    logits = d(augment(x, SEED, f"augment/d/{kind}", played.feed.rows), labels).logits_B
    (slope,) = torch.autograd.grad(logits.sum(), x, create_graph=True)
    square_B = slope.square().sum((1, 2, 3))
    loss_B = 0.5 * (square_B.sqrt() - 1).square() if module is gradient_penalty else 0.25 * square_B
    assert_plain(played, pair, loss_B, parts, rtol=1e-9)


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("side", list(Side))
def test_orthogonal(side, parts):
    pair, penalty = nets(), orthogonal.Penalty(orthogonal.Options(weight=0.5, interval=3, side=side.value))
    for net in pair.values():  # away from the orthogonal start, where it is nought
        for number, parameter in enumerate(net.parameters()):
            nn.init.normal_(parameter, generator=torch.Generator().manual_seed(number))
    net = pair[side]
    value = torch.zeros((), dtype=torch.float64)
    for name, w in net.named_parameters():
        if w.dim() > 1 and not any(part in name for part in ("embed", "gain", "bias")):
            gram = w.flatten(1) @ w.flatten(1).T
            value = value + ((gram * (1 - torch.eye(len(gram), dtype=torch.float64))) ** 2).sum()
    terms, grads = play(turn(side, penalty), pair, parts)
    assert terms.loss_B["orthogonal"].shape == (BATCH,)
    torch.testing.assert_close(terms.loss_B["orthogonal"].mean(), 1.5 * value.detach(), rtol=1e-11, atol=0)
    torch.testing.assert_close(grads, gradients(1.5 * value, net), rtol=1e-9, atol=1e-12)


def test_orthogonal_reads_transposed_convolutions_by_output():
    net = nn.ConvTranspose2d(3, 2, 2).double()
    rows = net.weight.detach().transpose(0, 1).flatten(1)
    part = PenaltyContext(
        network=CalledNetwork(module=net),
        feed=turn(Side.G).feed,
        outputs=Outputs(fake=DiscriminatorOutput(torch.zeros(BATCH))),
        input_gradient=lambda out, x: out,
    )
    value = orthogonal.Penalty(orthogonal.Options(weight=1.0))(part)
    torch.testing.assert_close(value, (2 * (rows[0] @ rows[1]) ** 2).expand(BATCH), rtol=1e-12, atol=0)


@pytest.mark.parametrize("module", [r1, r2, gradient_penalty])
def test_patch_logits_count_as_their_mean(module):
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 3).double()

        def forward(self, x, y=None):
            return DiscriminatorOutput(self.conv(x).tanh().squeeze(1))

    class Means(Patches):
        def forward(self, x, y=None):
            return DiscriminatorOutput(super().forward(x).logits_B.mean((1, 2)))

    patches, means = Patches(), Means()
    means.load_state_dict(patches.state_dict())
    played = turn(Side.D)
    found = []
    for net in (patches, means):
        x = played.feed.real.image.requires_grad_()
        fakes = played.feed.fakes[0].requires_grad_()
        outputs = Outputs(fake=net(fakes), real=net(x), images=fakes)
        part = PenaltyContext(
            network=CalledNetwork(module=net),
            feed=played.feed,
            outputs=outputs,
            input_gradient=lambda out, x, net=net: none.Strategy().input_gradient(net, out, x),
        )
        found.append(module.Penalty(module.Options())(part))
    torch.testing.assert_close(*found, rtol=1e-12, atol=0)


def test_gradient_penalty_survives_a_flat_discriminator():
    """The norm of a zero gradient has no derivative; it must not become NaN."""
    pair, penalty = nets(), gradient_penalty.Penalty(gradient_penalty.Options(weight=1.0))

    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(64, 1).double()
            nn.init.zeros_(self.linear.weight)

        def forward(self, x, y=None):
            return self.linear(x.flatten(1)).squeeze(1)

    terms, grads = play(turn(Side.D, penalty), {**pair, Side.D: Flat()})
    assert torch.equal(terms.loss_B["gradient_penalty"], torch.ones(BATCH, dtype=torch.float64))
    assert all(g.isfinite().all() for g in grads.values())


def test_gradient_penalty_refuses_batch_norm():
    pair, penalty = nets(), gradient_penalty.Penalty(gradient_penalty.Options())
    pair[Side.D] = dcgan.Discriminator(dcgan.Options(width=4), (1, 8, 8)).double()
    with pytest.raises(ConfigError, match=r"penalty gradient_penalty does not support a discriminator with batch norm"):
        play(turn(Side.D, penalty), pair)


def test_the_draw_depends_on_the_step():
    pair, penalty = nets(), gradient_penalty.Penalty(gradient_penalty.Options())
    values = [play(turn(Side.D, penalty, step=step), pair)[0].loss_B["gradient_penalty"] for step in (4, 5)]
    assert not torch.equal(*values)
