"""Law: cells that are trained as one batched program are the cells trained one after another."""

import pytest
import torch
from torch import nn

from paragan.core.outputs import DiscriminatorOutput
from paragan.core.protocols import Loss
from paragan.core.types import Side
from paragan.core.weight_schedule import WeightSchedule
from paragan.extensions.grid.cell import Cell
from paragan.extensions.grid.executors import choice, stacked
from paragan.extensions.grid.executors.stacked_adam import StackedAdam
from paragan.game.ema import Ema
from paragan.game.gan import GAN
from paragan.game.network import Calling
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.game.scheme import FunctionScheme
from paragan.layers.init import initialise
from paragan.losses import least_squares, minimax, nonsaturating
from paragan.models import mlp
from paragan.parallel import MemoryOptions, none
from paragan.penalties import gradient_penalty, r1, r2
from paragan.schemes import shared_fakes, skipping, synchronous
from tests.laws.cell_stream import CellStream

CELLS, BATCH, SHAPE = 4, 6, (1, 4, 4)
LOSSES = [Loss(kind.d_loss, kind.g_loss) for kind in (minimax, least_squares, nonsaturating)]
MLP = mlp.Options(latent=3, g_widths=(7, 5), d_widths=(6, 4), conditional=True, weight_init="orthogonal")


class Painter(nn.Module):
    """Transposed and plain convolutions: their gradients come back with odd strides."""

    weight_init, latent = "orthogonal", 3

    def __init__(self):
        super().__init__()
        self.up, self.out = nn.ConvTranspose2d(3, 4, 2), nn.ConvTranspose2d(4, 1, 4, 2, 1)

    def forward(self, z, y=None):
        return torch.tanh(self.out(torch.relu(self.up(z[:, :, None, None]))))


class Critic(nn.Module):
    """Answers for patches."""

    weight_init = "orthogonal"

    def __init__(self):
        super().__init__()
        self.see, self.judge = nn.Conv2d(1, 4, 3, 2, 1), nn.Conv2d(4, 1, 1)

    def forward(self, x, y=None):
        h = torch.relu(self.see(x))
        return DiscriminatorOutput(self.judge(h).flatten(1), h.mean((2, 3)))


NETS = {
    "mlp": {Side.G: lambda: mlp.Generator(MLP, SHAPE, 3), Side.D: lambda: mlp.Discriminator(MLP, SHAPE, 3)},
    "conv": {Side.G: Painter, Side.D: Critic},
}


PLAIN = FunctionScheme(synchronous.step)


def small_cell(
    number, nets, shape, batch, loss, *, scheme=PLAIN, losses=(), penalties=(), ema=True, per_step=1, **more
):
    """A cell in float64. nets: functions that construct its networks. more: of the policies, and channels_last."""
    calling = Calling(channels_last=more.pop("channels_last", False))

    def player(side):
        def net():
            torch.manual_seed(number)  # torch's spectral norm draws
            made = nets[side]().double()
            initialise(made, number, side.value)
            return made.to(memory_format=torch.channels_last) if calling.channels_last else made

        updates = per_step if side is Side.D else 1
        policy = Policy(**{"lr": 1e-3 * (1 + number), "updates_per_step": updates, **more})
        average = Ema(net(), EmaOptions(half_life_kimg=0.02)) if ema and side is Side.G else None
        return Player(side=side, net=net(), policy=policy, calling=calling, ema=average)

    g, d = map(player, Side)
    prior = Prior(seed=number, latent=g.net.latent, num_classes=3, dtype=torch.float64)
    gan = GAN(g=g, d=d, loss=loss, prior=prior, d_penalties=penalties)
    return Cell(number=number, gan=gan, scheme=scheme, batches=CellStream(number, batch, shape), losses=losses)


def cells(nets="mlp", losses=LOSSES, **more):
    policy = {"arguments": {"betas": (0.5, 0.99)}, "max_norm": 0.7}
    return [
        small_cell(number, NETS[nets], SHAPE, BATCH, LOSSES[0], losses=losses, **policy, **more)
        for number in range(CELLS)
    ]


def loss_of(cell, batch):
    return (cell.number + batch // 5) % len(LOSSES)


def weights(found):
    return {
        (cell.number, side, name): value.clone()
        for cell in found
        for side, p in cell.players.items()
        for name, value in [*p.net.state_dict().items(), *([] if p.ema is None else p.ema.net.state_dict().items())]
    }


def apart(a, b):
    assert a.keys() == b.keys()
    return max(float((a[key] - b[key]).abs().max() / (1 + b[key].abs().max())) for key in a)


GAMES = {
    "synchronous": {},
    "conv": {"nets": "conv"},
    "shared-fakes": {"scheme": shared_fakes.Scheme()},
    "skipping": {"scheme": skipping.Scheme(skipping.Options(2))},
    "two-d-updates": {"per_step": 2},
    "r1": {"penalties": (r1.Penalty(r1.Options(weight=0.5, interval=2)),)},
    "r2": {"penalties": (r1.Penalty(r1.Options(weight=0.5)), r2.Penalty(r2.Options(weight=0.3, interval=2)))},
    "one-loss": {"losses": ()},
}


@pytest.mark.parametrize(
    ("name", "steps"),
    [pytest.param(name, 50, marks=() if name in ("conv", "r1") else pytest.mark.slow) for name in GAMES],
)
def test_fifty_steps_end_at_the_same_weights(name, steps):
    one, other = cells(**GAMES[name]), cells(**GAMES[name])
    told, also = choice.train_in_loop(one, steps, loss_of), {}
    executor = stacked.StackedExecutor(BATCH)
    for first in range(0, steps, 10):  # several generations of one executor
        also = executor(other, 10, lambda cell, batch, first=first: loss_of(cell, batch + first))
    assert apart(weights(one), weights(other)) < 1e-9
    assert apart(weights(one), weights(cells(**GAMES[name]))) > 1e-2
    for a, b in zip(one, other, strict=True):
        assert (a.gan.clock, a.batches.position, a.loss) == (b.gan.clock, b.batches.position, b.loss)
        assert {s: (p.version, p.images) for s, p in a.players.items()} == {
            s: (p.version, p.images) for s, p in b.players.items()
        }
        assert told[a.number].keys() == also[b.number].keys()
        for key, value in told[a.number].items():
            assert float(value) == pytest.approx(float(also[b.number][key]), rel=1e-5, abs=1e-7), key


def test_numbers_of_a_generation_are_not_those_of_an_earlier_one():
    """R1 is due in the first generation, of one step, and not in the second."""
    reported = []
    for executor in (choice.train_in_loop, stacked.StackedExecutor(BATCH)):
        found = cells(**GAMES["r1"])
        both = [executor(found, 1, loss_of)[0] for _ in range(2)]
        reported.append([set(numbers) for numbers in both])
    assert reported[0] == reported[1]
    assert reported[1][0] - reported[1][1] == {"d/loss/r1"}


@pytest.mark.parametrize("name", ["synchronous", "conv", "r1", "shared-fakes"])
def test_gradients_are_the_same_to_twelve_digits(name, monkeypatch):
    found = []
    for executor in (choice.train_in_loop, stacked.StackedExecutor(BATCH)):
        seen = {}
        finish = none.Strategy.finish

        def looked(self, net, max_norm, scale=None, seen=seen, finish=finish):
            seen[len(seen)] = [None if p.grad is None else p.grad.clone() for p in net.parameters()]
            return finish(self, net, max_norm, scale)

        def together(self, gradient_CP, images, seen=seen, step=StackedAdam.step):
            for cell, p in enumerate(self.players):
                sizes = [weight.numel() for weight in p.net.parameters()]
                parts = zip(gradient_CP[cell].split(sizes), p.net.parameters(), strict=True)
                seen[len(seen)] = [part.view(weight.shape).clone() for part, weight in parts]
            return step(self, gradient_CP, images)

        monkeypatch.setattr(StackedAdam, "step", together)
        monkeypatch.setattr(none.Strategy, "finish", looked)
        executor(cells(**GAMES[name]), 1, loss_of)
        monkeypatch.undo()
        found.append(seen)
    by_cell, by_side = found  # one cell's D, then its G; all cells' D, then all cells' G
    for cell in range(CELLS):
        for turn in range(2):
            for a, b in zip(by_cell[2 * cell + turn], by_side[CELLS * turn + cell], strict=True):
                assert float((a - b).abs().max()) <= 1e-12 * (1 + float(a.abs().max()))


def test_a_genome_of_a_stacked_cell_is_its_own():
    found = cells()
    executor = stacked.StackedExecutor(BATCH)
    executor(found, 2, loss_of)
    first = found[0].snapshot(1)
    before = {side: genome.file_bytes for side, genome in first.items()}
    found[1].clone(Side.G, first[Side.G], 1e-3)  # a clone in another cell's place in the stack
    assert torch.equal(
        torch.cat([p.flatten() for p in found[1].players[Side.G].net.parameters()]),
        torch.cat([p.flatten() for p in found[0].players[Side.G].net.parameters()]),
    )
    executor(found, 2, loss_of)
    assert {side: genome.file_bytes for side, genome in first.items()} == before
    assert executor._stack is not None and executor._stack.slots[Side.G].stack.weights[0].shape[0] == CELLS


class Normed(nn.Module):
    weight_init, latent = "orthogonal", 3

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, 16), nn.Linear(16, 16)])

    def forward(self, z, y=None):
        return self.blocks[1](self.blocks[0](z).to(self.blocks[1].weight.dtype)).unflatten(1, SHAPE)


def recomputing():
    strategy = none.Strategy(memory=MemoryOptions(recompute=True))
    return Player(side=Side.G, net=strategy.prepare(lambda: Normed().double(), None), strategy=strategy)


def in_two_dtypes():
    net = Normed().double()
    net.blocks[1].float()
    return Player(side=Side.G, net=net)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"g": recomputing}, "G recomputes its activations"),
        ({"g": in_two_dtypes}, "G has weights of several dtypes"),
        ({"penalty": gradient_penalty.Penalty(gradient_penalty.Options())}, "the penalty gradient_penalty draws"),
        ({"version": 3}, "G has different numbers of updates in the cells"),
    ],
)
def test_unstackable_cells_give_the_reason(change, why):
    found = cells()
    assert choice.unstackable_reason(found) is None
    if "g" in change:
        found[1].gan.g = change["g"]()
    if "penalty" in change:
        found[0].gan.d_penalties = (change["penalty"],)
    if "version" in change:
        found[1].gan.g.version = change["version"]
    assert (choice.unstackable_reason(found) or "").startswith(why)


def test_a_weight_that_fades_is_not_recorded():
    """A recording would go on with that of its first step."""
    for weight, why in (
        (5.0, None),
        (WeightSchedule(start=5.0, final=0.0, to_kimg=1), "the weight of a loss changes from step to step"),
    ):
        found = cells()
        found[0].gan.d_penalties = (r1.Penalty(r1.Options(weight=weight)),)
        assert choice.unstackable_reason(found) is None
        assert choice.unrecordable_reason(found) == why
