"""Players with frozen networks on ranks: declared (`Frozen`) and by `requires_grad_(False)`."""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import paragan as pg
from paragan.checkpoint.weight_files import open_weights
from paragan.core.dist import ALONE, World
from paragan.core.layout import StoredTensors, TensorLayout
from paragan.core.network_factory import NetworkFactory
from paragan.game.ema import Ema
from paragan.game.initial_weights import start_from
from paragan.game.options import EmaOptions
from paragan.game.state import state_of
from paragan.layers.init import initialise
from paragan.parallel import none
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.laws.small_gan import distance
from tests.unit.layers.test_frozen import SHAPE, Net, extractor

BATCH, STEPS = 6, 3


class Held(nn.Module):
    """An extractor as an ordinary submodule, frozen as usual."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.network = extractor(seed).double().eval().requires_grad_(False)
        for value in self.network.state_dict().values():
            if value.is_floating_point():
                value.mul_(torch.pi)  # all digits of float64: their mean over three ranks is not exact

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)


def make(side: pg.Side, declared: bool) -> NetworkFactory:
    seed = int(side is pg.Side.D)

    inner = pg.Frozen(extractor(seed), torch.float64)

    def construct() -> nn.Module:
        torch.manual_seed(seed)
        return Net(inner if declared else Held(seed), 1 if seed else 16)

    return NetworkFactory(construct, partial(initialise, seed=0, stream=side.value) if declared else None)


def game(placing, world: World, declared: bool, parts: int) -> pg.GAN:
    policy = pg.Policy(
        kind=torch.optim.AdamW, lr=1e-2, arguments={"weight_decay": 0.1}, max_norm=0.5, micro_batches=parts
    )
    players = []
    for side in pg.Side:
        made, mine = make(side, declared), placing()
        ema = Ema(mine.prepare_average(made, world), EmaOptions(half_life_kimg=0.01))
        players.append(pg.Player(side=side, net=mine.prepare(made, world), strategy=mine, policy=policy, ema=ema))
    loss = pg.Loss(lambda real, fake: fake.tanh() - real.tanh(), lambda fake, real: -fake.tanh())
    penalty = pg.R1Penalty(pg.R1Options(weight=0.1))
    return pg.GAN(
        g=players[0],
        d=players[1],
        loss=loss,
        prior=pg.Prior(seed=0, latent=16, dtype=torch.float64),
        d_penalties=(penalty,),
    )


def play(gan: pg.GAN, share: tuple[int, int]) -> dict[str, Tensor]:
    """Train some steps; weights, buffers and averages of both players, and those of what is frozen."""
    for step in range(STEPS):
        rows = pg.Rows(step=step, first=share[0], count=share[1], total=BATCH)
        draw = torch.Generator().manual_seed(step)
        image = torch.randn(BATCH, *SHAPE, generator=draw, dtype=torch.float64)
        synchronous.step(gan, iter([pg.Batch(rows, {"image": image[rows.window]})]))
    found: dict[str, Tensor] = {}
    for player in (gan.g, gan.d):
        for prefix, net in (("net/", player.net), ("ema/", player.ema.net)):
            weights = player.strategy.weights(net)
            found |= {f"{player.side.value}/{prefix}{name}": value.clone() for name, value in weights.items()}
    return found


def against_one_process(world: World, name: str, declared: bool, parts: int = 1) -> dict[str, float]:
    """The largest difference from one process, how far the frozen tensors moved, and what was sent and saved."""
    plain = game(none.Strategy, ALONE, declared, parts)
    expected = play(plain, (0, BATCH))
    gan = game(lambda: strategy(name), world, declared, parts)
    sent = world.sent["parameters"]
    mine = play(gan, world.share(BATCH))
    start = {f"{side.value}/net/{k}": v for side in pg.Side for k, v in make(side, declared)().state_dict().items()}
    frozen = {key for key in start if ".network." in key}
    inner = [gan.g.net.features.network, plain.g.net.features.network] if declared else []
    moved = [distance(dict(net.state_dict()), dict(extractor().double().state_dict())) for net in inner]
    names = [key for player in (gan.g, gan.d) for key in state_of(player)[0].tensors]
    return {
        "difference": distance(mine, expected),
        "moved": max([distance({k: mine[k]}, {k: start[k]}) for k in frozen] + moved),
        "trained": distance({k: mine[k] for k in start.keys() - frozen}, {k: start[k] for k in start.keys() - frozen}),
        "sent": world.sent["parameters"] - sent,
        "frozen tensors saved": sum(".network." in name for name in names),
    }


def started_from_file(world: World, name: str, path: str) -> list[float]:
    """Differences of D and its average from a file's weights, and the share of the elements that is read here."""
    made, mine = make(pg.Side.D, declared=True), strategy(name)
    ema = Ema(mine.prepare_average(made, world), EmaOptions())
    d = pg.Player(side=pg.Side.D, net=mine.prepare(made, world), strategy=mine, ema=ema)
    stored = open_weights([Path(path)], "d.init.path")
    num_read = []

    def read(key: str, box: TensorLayout) -> Tensor:
        found = stored.read(key, box)
        num_read.append(found.numel())
        return found

    start_from(d, StoredTensors(stored.shapes, read), StoredTensors.of({}), dict)
    total = sum(value.numel() for value in stored.values())
    differences = [distance(mine.weights(net), dict(stored)) for net in (d.net, d.ema.net)]
    return [*differences, sum(num_read) / 2 / total]


def unfrozen_later(world: World) -> str:
    """What local SGD says of a weight that was frozen when the player was built."""
    gan = game(lambda: strategy("local_sgd"), world, declared=False, parts=1)
    gan.d.net.features.network.requires_grad_(True)
    try:
        play(gan, world.share(BATCH))
    except pg.ConfigError as error:
        return str(error)
    return ""
