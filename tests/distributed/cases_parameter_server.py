"""What ranks do of which the first holds both players."""

import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import torch

from paragan import build
from paragan.config import read_recipe
from paragan.core.dist import World
from paragan.core.types import Side
from paragan.extensions.parameter_server import worker
from paragan.extensions.parameter_server.schemes.parameter_server import Options, Scheme
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.snapshot import num_bytes
from paragan.loading.loader import BatchRows
from paragan.parallel import none
from paragan.schemes import synchronous
from tests.distributed.cases_asynchronous import STEPS, alone
from tests.laws.small_gan import BATCH, batches, distance, game, network, player
from tests.tiny_run import SMALL, TINY


def seat(side: Side, k: int, works: bool) -> Player:
    """As `build` makes it: a worker's player has nothing that only a step needs."""
    made = player(side, none.Strategy(), per_step=k if side is Side.D else 1)
    if works:
        made.ema, made.policy = None, replace(made.policy, max_norm=None)
    return made


def begun(world: World, staleness: int, k: int = 1, seats=None):
    """A game of this rank, its scheme, its batches."""
    scheme = Scheme(Options(staleness))
    roles = scheme.roles(world, 30.0)
    works = not roles.sides
    gan = game(*(seats(side) if seats else seat(side, k, works) for side in Side))
    share = roles.batch_world.share(BATCH)
    return gan, scheme, batches(*share) if works else BatchRows(None, BATCH, share)


def no_delay(world: World, k: int = 1) -> list:
    """The largest difference of this rank's networks from the plain game's, and of what is told."""
    gan, scheme, stream = begun(world, 0, k)
    reports = [scheme.step(gan, stream) for _ in range(STEPS)]
    scheme.quiesce()
    nets, expected = alone(False, k)
    found = [distance(dict(seat.net.state_dict()), nets[seat.side.value]) for seat in (gan.g, gan.d)]
    if gan.g.ema is not None:
        found.append(distance(dict(gan.g.ema.net.state_dict()), nets["ema"]))
    told = [scheme._roles.gather_merged(report.read(scheme._roles.batch_world.sum)) for report in reports]
    assert all(a.keys() == b.keys() for a, b in zip(told, expected, strict=True)), (told[0].keys(), expected[0].keys())
    words = max(abs(a[key] - b[key]) / (1 + abs(b[key])) for a, b in zip(told, expected, strict=True) for key in b)
    assert (gan.clock.step, gan.clock.images) == (STEPS, STEPS * k * BATCH)
    assert (gan.d.version, gan.g.version) == (STEPS * k, STEPS)
    scheme.close()
    return [max(found), words]


def bounded(world: World, bound: int, steps: int, k: int = 1) -> list:
    """How late and how far ahead who was how often, updates and images of both players; each rank is now and then late.

    Of the server: ages, ahead, (version, images) of D and G. Of a worker: its lags by side.
    """
    gan, scheme, stream = begun(world, bound, k)
    draw, late = random.Random(f"{bound} {world.rank}"), [0.0] * 9 + [0.02]
    for _ in range(steps):
        time.sleep(draw.choice(late))
        scheme.step(gan, stream)
    scheme.quiesce()
    found = [gan.clock.step, gan.clock.images]
    if scheme._roles.sides:
        server = scheme._session
        counts = [[seat.version, seat.images, int(seat.updates)] for seat in (gan.d, gan.g)]
        found += [dict(server.ages), dict(server.ahead), counts]
    else:
        found += [{side: dict(told.lags) for side, told in scheme.staleness_logs.items()}]
        found += [sum(told.wait_s for told in scheme.staleness_logs.values())]
    scheme.close()
    return found


def one_by_one(world: World) -> float:
    """D after one step in which every worker's gradients were applied by themselves, against one of so often the rate.

    The first turn of each is played on the first weights, so that with plain SGD their order does not matter.
    """

    def seats(side: Side, workers: int = 1) -> Player:
        return Player(side=side, net=network(side), policy=Policy(kind=torch.optim.SGD, lr=1e-2 * workers))

    gan, scheme, stream = begun(world, 1, seats=seats)
    before = {name: value.clone() for name, value in gan.d.net.state_dict().items()}
    scheme.step(gan, stream)
    scheme.quiesce()
    scheme.close()
    plain = game(seats(Side.G), seats(Side.D, world.size - 1))
    synchronous.step(plain, batches())
    if not scheme._roles.sides:
        return 0.0
    assert distance(before, dict(gan.d.net.state_dict())) > 1e-3
    return distance(dict(gan.d.net.state_dict()), dict(plain.d.net.state_dict()))


def silent(world: World, bound: int) -> str:
    """What the others say when the last rank plays no more, which is here and whose threads go on."""
    gan, scheme, stream = begun(world, bound)
    scheme.step(gan, stream)
    scheme._session.roles = replace(scheme._roles, timeout_s=1.0)
    said, began, longer = "", time.monotonic(), worker._GRACE_S
    worker._GRACE_S = 1.0
    try:
        for _ in range(20 if world.rank < world.size - 1 else 0):
            scheme.step(gan, stream)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    finally:
        worker._GRACE_S = longer
        scheme.close()
    return said + " late" * (time.monotonic() - began > 20)


def killed(world: World, folder: str, rank: int) -> None:
    """What the others say, into files, when one is killed."""
    gan, scheme, stream = begun(world, 1)
    try:
        for step in range(50):
            if step == 3 and world.rank == rank:
                os.kill(os.getpid(), signal.SIGKILL)
            scheme.step(gan, stream)
    except Exception as error:
        (Path(folder) / f"rank-{world.rank}").write_text(f"{type(error).__name__}: {error}")
        raise


def recorded_traffic(world: World, folder: str, words: list[str]) -> list:
    """Bytes on links by kind and step of a run, as recorded; bytes and number of tensors of D and G."""
    words = [*TINY, *SMALL, "scheme.name=parameter_server", "every.log_steps=1", "every.save_kimg=0", *words]
    trainer = build.trainer(read_recipe("digits", words), Path(folder), print, stop=lambda: False, world=world)
    lines = [(event.step, event.values["links"]) for event in trainer.run() if event.kind == "traffic"]
    nets = {side.value: slot.net for side, slot in ((Side.D, trainer.gan.d), (Side.G, trainer.gan.g))}
    sizes = {name: [num_bytes(net.state_dict().values()), len(list(net.parameters()))] for name, net in nets.items()}
    return [lines, sizes]


def a_run(world: World, folder: str, words: list[str]) -> list:
    """Steps saved, players held, what the optimisers keep, the clock, the stream's place, of a real run to its end."""
    small = () if any(word.startswith("model.name") for word in words) else SMALL
    words = [*TINY, *small, "scheme.name=parameter_server", "every.save_kimg=0.032", *words]
    trainer = build.trainer(read_recipe("digits", words), Path(folder), print, stop=lambda: False, world=world)
    resumed = trainer.resume()
    saved = [event.step for event in trainer.run() if event.kind == "checkpoint"]
    seats = (trainer.gan.g, trainer.gan.d)
    kept = [sum(len(entry) for entry in seat.optimizer.state.values()) for seat in seats]
    clock = [trainer.clock.step, trainer.clock.images, trainer.batches.position]
    return [resumed, saved, sorted(trainer.players), [bool(n) for n in kept], clock]
