"""The games of the numerical checks where their rows lie on several ranks, and where the number of ranks changes."""

import math
from functools import cache, partial
from pathlib import Path

import torch

from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.dist import ALONE, World
from paragan.core.layout import Pieces, StoredTensors
from paragan.core.types import Rows
from paragan.game.gan import GAN
from paragan.game.state import restore, state_of
from paragan.layers.all_reduce import ReduceGroup, gather_batch
from tests.distributed.cases_laws import UNEVEN, strategy
from tests.laws.small_gan import distance
from tests.numerics.games import Game, batches, factory, library, state, step

SHARES = {1: (6,), 2: (4, 2), 3: (3, 1, 2)}
SAVED, STEPS = 2, 4
FINITE = {"sigma": 0.1, "divide_by_sigma_squared": True}
APPROXIMATE = {"approximate_r1": {"weight": 0.6, "fraction": 0.3, **FINITE}}
APPROXIMATE["approximate_r2"] = {"weight": 0.4, "interval": 2, "fraction": 0.5, **FINITE}
LECAM = {"lecam": {"weight": 0.8, "decay": 0.6, "warmup": 1}}
CONSISTENCY = {"consistency": {"weight": 0.8, "fake_weight": 0.5}}
R1 = {"r1": {"weight": 0.5, "interval": 3}}
LENGTHS = {"path_length": {"weight": 2.0, "interval": 2, "decay": 0.3}}
ORTHOGONAL = {"orthogonal": {"weight": 0.1}}

GAMES = {
    "approximate R1 and R2": Game(d=APPROXIMATE, nets="spectral"),
    "approximate R1 and R2 in parts": Game(d=APPROXIMATE, parts=2),
    "approximate R1 and R2, shared fakes": Game(d=APPROXIMATE, parts=2, scheme="shared_fakes"),
    "consistency": Game(d=CONSISTENCY),
    "consistency, extragradient": Game(d=CONSISTENCY, scheme="extragradient"),
    "WGAN-GP": Game(loss="wasserstein", d={"gradient_penalty": {"weight": 3.0}}),
    "lazy WGAN-GP, LeCam": Game(
        loss="wasserstein", k=2, d={"gradient_penalty": {"weight": 3.0, "interval": 3}, **LECAM}
    ),
    "LeCam": Game(d=LECAM, nets="batch norm"),
    "LeCam, extragradient": Game(d=LECAM, scheme="extragradient"),
    "RaGAN": Game(loss="relativistic_average", nets="batch norm"),
    "ADA, lazy R1": Game(augment="ada", d=R1, k=2),
    "ADA in parts": Game(augment="ada", parts=2),
    "ADA, R1, extragradient": Game(augment="ada", d={"r1": {"weight": 0.5}}, scheme="extragradient"),
    "DiffAugment": Game(augment="diffaugment", nets="spectral"),
    "orthogonal": Game(g=ORTHOGONAL, d=ORTHOGONAL, nets="spectral"),
    "orthogonal, shared fakes": Game(g=ORTHOGONAL, parts=2, scheme="shared_fakes"),
    "feature matching": Game(g={"feature_matching": {"weight": 0.8}}, nets="spectral"),
    "contrastive": Game(d={"contrastive": {"weight": 0.8}}, g={"contrastive": {"weight": 0.8}}, nets="contragan"),
    "data to data": Game(d={"data_to_data": {"weight": 0.8}}, g={"data_to_data": {"weight": 0.8}}, nets="contragan"),
    "StyleGAN2": Game(g=LENGTHS, d=R1, nets="stylegan2"),
    "StyleGAN2, shared fakes": Game(g=LENGTHS, d=R1, scheme="shared_fakes", nets="stylegan2"),
    "reconstruction": Game(d={"reconstruction": {"weight": 0.8}}, augment="diffaugment", nets="fastgan"),
    "auxiliary": Game(d={"auxiliary": {"weight": 0.8}}, g={"auxiliary": {"weight": 0.8}}, nets="auxiliary"),
    "balancer, lazy term": Game(balanced=True, g={"near": {"interval": 2}}),
    "spectral norm, AdaBelief": Game(optimizer="adabelief", nets="spectral"),
    "shared fakes": Game(scheme="shared_fakes", nets="spectral"),
    "NaN": Game(augment="ada", d={**LECAM, **R1}, nets="batch norm", bad=2),
    "NaN, extragradient": Game(augment="ada", d={**LECAM, **R1}, nets="batch norm", scheme="extragradient", bad=2),
}


def built(world: World, name: str, g: str, d: str) -> GAN:
    return library(GAMES[name], world, [partial(strategy, kind) for kind in (g, d)])


def play(world: World, name: str, gan: GAN, first: int, last: int) -> list[dict[str, float]]:
    """What is reported after each of these steps."""
    game, shares = GAMES[name], SHARES[world.size]
    stream = batches(sum(shares[: world.rank]), shares[world.rank], first * game.k, game.bad)
    return [step(game, gan, stream).read(world.sum) for _ in range(first, last)]


def stored(gan: GAN) -> list:
    return [state_of(player) for player in (gan.g, gan.d)]


def stored_copy(pieces: Pieces) -> StoredTensors:
    """As they would be read from a file."""
    return StoredTensors.of({name: value.clone() for name, value in pieces.tensors.items()})


@cache
def alone(name: str) -> tuple[dict[str, torch.Tensor], list, list]:
    """One process, the whole batch: what it ends with, would have saved on the way, and reports after that."""
    gan = library(GAMES[name])
    play(ALONE, name, gan, 0, SAVED)
    saved = [(stored_copy(pieces), values) for pieces, values in stored(gan)]
    reports = play(ALONE, name, gan, SAVED, STEPS)
    found = state(gan)
    for player in (gan.g, gan.d):
        assert distance(dict(player.net.state_dict()), dict(factory(player.side, GAMES[name])().state_dict())) > 1e-4
        skipped = GAMES[name].bad is not None and player is gan.d
        assert int(player.updates) == player.version - skipped
        assert not player.state or any(abs(float(value)) > 1e-4 for value in player.state.values())
    assert all(value.isfinite().all() for value in found.values())
    return found, saved, reports


def against_one_process(world: World, name: str, g: str, d: str) -> list[float]:
    """The largest difference of any weight, average or state of a term from one process: straight, and resumed.

    Resumed: what one process saved is read by the ranks. Last: of anything reported, which is float32.
    """
    expected, saved, reports = alone(name)
    straight = built(world, name, g, d)
    play(world, name, straight, 0, STEPS)
    resumed = built(world, name, g, d)
    for player, (tensors, values) in zip((resumed.g, resumed.d), saved, strict=True):
        restore(player, tensors, values)
    found = play(world, name, resumed, SAVED, STEPS)
    pairs = [(report[key], other[key]) for report, other in zip(found, reports, strict=True) for key in other]
    apart = [abs(a - b) / (1 + abs(b)) for a, b in pairs if math.isfinite(b) or math.isfinite(a)]
    return [*(distance(state(gan), expected) for gan in (straight, resumed)), max(apart)]


def save(world: World, name: str, g: str, d: str, folder: str) -> None:
    """Train the first steps and save."""
    gan = built(world, name, g, d)
    play(world, name, gan, 0, SAVED)
    _save(world, gan, folder)


def _save(world: World, gan: GAN, folder: str) -> None:
    pairs = dict(zip("gd", stored(gan), strict=True))
    groups = {side: pieces for side, (pieces, _) in pairs.items()}
    CheckpointWriter(folder=Path(folder), world=world).save(
        SAVED, groups, {side: counts for side, (_, counts) in pairs.items()}
    )


def _resumed(world: World, name: str, g: str, d: str, folder: str) -> GAN:
    gan = built(world, name, g, d)
    found = CheckpointWriter(folder=Path(folder), world=world).newest()
    for player in (gan.g, gan.d):
        restore(player, found.groups[player.side.value], found.values[player.side.value])
    play(world, name, gan, SAVED, STEPS)
    return gan


def go_on_alone(name: str, folder: str) -> float:
    """Read what ranks saved, train the last steps in one process: the difference from one that never stopped."""
    return distance(state(_resumed(ALONE, name, "none", "none", folder)), alone(name)[0])


def stopped_and_not(world: World, name: str, g: str, d: str, folder: str) -> bool:
    """Whether ranks that save and start anew end with the bits of ranks that do not stop."""
    straight = built(world, name, g, d)
    play(world, name, straight, 0, SAVED)
    _save(world, straight, folder)
    play(world, name, straight, SAVED, STEPS)
    expected, found = state(straight), state(_resumed(world, name, g, d, folder))
    return all(torch.equal(value, found[key]) for key, value in expected.items())


def whole_rows(world: World) -> list:
    """Values in the order of the batch, and the gradient of all ranks' sums at the rows here."""
    total, counts = 20, UNEVEN[world.size]
    rows = Rows(step=0, first=sum(counts[: world.rank]), count=counts[world.rank], total=total)
    x = torch.arange(total, dtype=torch.float64)[rows.window, None].requires_grad_()
    found = gather_batch(x, rows, ReduceGroup(world.group))
    ((world.rank + 1) * found.square().sum()).backward()
    labels = gather_batch(torch.arange(total)[rows.window], rows, ReduceGroup(world.group))
    return [found[:, 0].tolist(), x.grad[:, 0].tolist(), labels.tolist()]
