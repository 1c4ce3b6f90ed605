"""One turn of a small conditional game in float64, played by the plain strategy: what tests of penalties stand on."""

import torch
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.outputs import Outputs
from paragan.core.protocols import Turn
from paragan.core.types import Batch, LossTerms, Rows, Side, TurnInputs
from paragan.game.network import CalledNetwork
from paragan.layers.init import initialise
from paragan.layers.update_once import hold_updates
from paragan.models import sngan
from paragan.parallel import none

SHAPE, CLASSES, BATCH, SEED = (1, 8, 8), 3, 6, 11
OPTIONS = sngan.Options(latent=5, width=4)


class Bare(nn.Module):
    """A discriminator of logits alone."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 1).double()

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return self.linear(x.flatten(1)).squeeze(1)


def nets() -> dict[Side, nn.Module]:
    found = {Side.G: sngan.Generator(OPTIONS, SHAPE, CLASSES), Side.D: sngan.Discriminator(OPTIONS, SHAPE, CLASSES)}
    for side, net in found.items():
        net.weight_init = "orthogonal"
        initialise(net.double(), SEED, side.value)
        hold_updates(net)
    found[Side.G].eval()  # batch norm would tell parts from the whole
    return found


def turn(side: Side, *penalties, step: int = 4) -> Turn:
    """The penalties alone, for `side`; the adversarial loss is nought."""
    rows = Rows(step=step, first=0, count=BATCH, total=BATCH)
    x = rng.uniform(SEED, "x", rows, SHAPE).double() * 2 - 1
    real = Batch(rows, {"image": x, "label": rng.integers(SEED, "real/y", rows, CLASSES)})
    z, y = rng.normal(SEED, "z", rows, (OPTIONS.latent,)).double(), rng.integers(SEED, "y", rows, CLASSES)
    fakes = (rng.normal(SEED, "fakes", rows, SHAPE).double().tanh(),) if side is Side.D else None
    chain = (Side.D,) if side is Side.D else (Side.G, Side.D)
    needs_real = side is Side.D or any(penalty.needs_real for penalty in penalties)
    feed = TurnInputs(rows=rows, seed=SEED, tensors={"latent": z, "label": y}, real=real, fakes=fakes)
    return Turn(side=side, chain=chain, feed=feed, objective=_nothing, penalties=penalties, needs_real=needs_real)


def play(played: Turn, pair: dict[Side, nn.Module], parts: int = 1) -> tuple[LossTerms, dict[str, Tensor]]:
    """The terms, and the gradient of every parameter of the turn's side (0 where none arrived)."""
    net, called = pair[played.side], {side: CalledNetwork(module=module) for side, module in pair.items()}
    net.zero_grad()
    with called[Side.D if played.side is Side.G else Side.G].frozen():
        terms = none.Strategy().forward_backward(played, called, parts)
    return terms, {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in net.named_parameters()}


def assert_plain(played: Turn, pair: dict[Side, nn.Module], loss_B: Tensor, parts: int = 1, **bounds: float) -> None:
    """The turn's only penalty and its gradients are those of a plain loop, which has computed `loss_B`.

    bounds: `rtol`, `atol` of the loss; `least`, which some gradient exceeds.
    """
    of = {"rtol": 1e-11, "atol": 1e-13, "least": 1e-4, **bounds}
    slopes = torch.autograd.grad(loss_B.sum() / BATCH, list(pair[played.side].parameters()), allow_unused=True)
    terms, grads = play(played, pair, parts)
    rows = [row for part in played.feed.rows.parts(parts) for row in range(BATCH)[part.window]]
    (found,) = (terms.loss_B[penalty.name] for penalty in played.penalties)
    torch.testing.assert_close(found, loss_B.detach()[rows], rtol=of["rtol"], atol=of["atol"])
    slopes = [torch.zeros_like(g) if s is None else s for s, g in zip(slopes, grads.values(), strict=True)]
    torch.testing.assert_close([*grads.values()], slopes, rtol=1e-8, atol=1e-13)
    assert max(slope.abs().max() for slope in slopes) > of["least"]


def _nothing(outputs: Outputs, feed: TurnInputs) -> LossTerms:
    return LossTerms({"adversarial": outputs.fake.logits_B.reshape(len(outputs.fake.logits_B), -1).sum(1) * 0})
