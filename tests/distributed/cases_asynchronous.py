"""What ranks do that hold one player each."""

import random
import resource
import time
from functools import cache
from statistics import median
from types import SimpleNamespace

import torch

from paragan.core.dist import ALONE, World
from paragan.core.roles import Roles
from paragan.core.types import Side
from paragan.game.policy import Policy
from paragan.game.snapshot import RemotePlayer, Snapshot
from paragan.loading.loader import BatchRows
from paragan.parallel import none
from paragan.schemes import shared_fakes, synchronous
from paragan.schemes.asynchronous import Options, Scheme
from paragan.schemes.asynchronous.players_at_once import PlayersAtOnce
from tests.distributed.cases_laws import strategy
from tests.laws.small_gan import BATCH, batches, distance, game, network, play, player

STEPS = 4
PLAIN = {False: synchronous, True: shared_fakes.Scheme()}


def seat(side: Side, roles: Roles, k: int, name: str, options: dict):
    per_step = k if side is Side.D else 1
    if side in roles.sides:
        own = roles.batch_world
        return player(side, strategy(name, options) if own.size > 1 else none.Strategy(), mesh=own, per_step=per_step)
    seen = Snapshot(network(side)) if side is Side.D or roles.sends_states else None
    return RemotePlayer(side, Policy(updates_per_step=per_step), seen)


def begun(world: World, num_g: int, k: int = 1, name: str = "ddp", options: dict | None = None, make=Scheme, **chosen):
    """A game of this rank, its scheme, its batches."""
    scheme = make(Options(ranks={"g": num_g, "d": world.size - num_g}, **chosen))
    roles = scheme.roles(world, 30.0)
    gan = game(*(seat(side, roles, k, name, options or {}) for side in Side))
    share = roles.batch_world.share(BATCH)
    return gan, scheme, batches(*share) if Side.D in roles.sides else BatchRows(None, BATCH, share)


@cache
def alone(reuse: bool, k: int):
    """One process, everything in turn."""
    gan = game(*(player(side, none.Strategy(), mesh=ALONE, per_step=k if side is Side.D else 1) for side in Side))
    reports = play(gan, PLAIN[reuse], batches(), STEPS)
    return {"g": gan.g.net.state_dict(), "d": gan.d.net.state_dict(), "ema": gan.g.ema.net.state_dict()}, reports


def no_delay(
    world: World, num_g: int, reuse: bool, k: int = 1, name: str = "ddp", sends_fakes: bool = False, **chosen
) -> list:
    """Which player is here, the largest difference from the plain game, whether what is told is the same.

    sends_fakes: also without reuse, as with a staleness above 0, instead of taking turns.
    """
    make = PlayersAtOnce if sends_fakes else Scheme
    gan, scheme, stream = begun(world, num_g, k, name, make=make, staleness=0, reuse=reuse, **chosen)
    reports = [scheme.step(gan, stream) for _ in range(STEPS)]
    scheme.quiesce()
    nets, expected = alone(reuse, k)
    (side,) = scheme._roles.sides
    mine, own = getattr(gan, side.value), scheme._roles.batch_world
    found = [distance(mine.strategy.weights(mine.net), nets[side.value])]
    if side is Side.G:
        found += [distance(mine.strategy.weights(mine.ema.net), nets["ema"])]
        found += [distance(dict(gan.d.snapshot.net.state_dict()), nets["d"])]  # after the last step, D as it is
    told = [report.read(own.sum) for report in reports]
    words = max(abs(a[key] - b[key]) / (1 + abs(b[key])) for a, b in zip(told, expected, strict=True) for key in a)
    clock = (gan.clock.step, gan.clock.images) == (STEPS, STEPS * k * BATCH)
    scheme.close()
    return [side.value, max(found), bool(words < 1e-5 and clock)]


def bounded(world: World, num_g: int, bound: int, steps: int, seed: int = 0) -> list:
    """Which player, how late the other was how often, whether the versions are what they should be."""
    gan, scheme, stream = begun(world, num_g, staleness=bound, fall_back=None)
    draw, took = random.Random(f"{seed} {world.rank}"), [0.002]
    for _ in range(steps):
        if draw.random() < 0.05:
            time.sleep(10 * median(took))  # long enough for the other to come far, however busy the machine is
        began = time.monotonic()
        scheme.step(gan, stream)
        took.append(time.monotonic() - began)
    scheme.quiesce()
    (side,) = scheme._roles.sides
    told = scheme.staleness_logs[side.value]
    versions = [gan.clock.step, getattr(gan, side.value).version]
    scheme.close()
    return [side.value, dict(told.lags), versions, round(told.wait_s, 3)]


def odd_batches(world: World, num_g: int, g_batch: int, name: str = "ddp", k: int = 2) -> list:
    """Some steps with another batch of G's; whether both players moved, and the versions."""
    gan, scheme, stream = begun(world, num_g, k, name, g_batch=g_batch)
    for _ in range(STEPS):
        scheme.step(gan, stream)
    scheme.quiesce()
    (side,) = scheme._roles.sides
    mine = getattr(gan, side.value)
    moved = distance(mine.strategy.weights(mine.net), dict(network(side).state_dict()))
    scheme.close()
    return [side.value, moved, mine.version, mine.images]


def traffic(world: World, steps: int, **chosen) -> list:
    """Which player is here, bytes by kind that its links sent in these steps, bytes of D's state and of a batch."""
    gan, scheme, stream = begun(world, 2, **chosen)
    scheme.step(gan, stream)
    scheme.quiesce()
    before = dict(world.sent)
    for _ in range(steps):
        scheme.step(gan, stream)
    (side,) = scheme._roles.sides
    counted = {kind: world.sent[kind] - before.get(kind, 0) for kind in ("states", "fakes")}
    scheme.quiesce()
    scheme.close()
    state = list(network(Side.D).state_dict().values())
    sizes = [sum(t.numel() * t.element_size() for t in state), sum(t.numel() for t in state)]
    return [side.value, counted, sizes, sum(1 for t in state if not t.is_floating_point())]


def paused(world: World, steps: int, name: str = "ddp", **chosen) -> list:
    """Which player is here, how late G's opponent was, the versions it had, and whether a pause made it exact."""
    gan, scheme, stream = begun(world, 2, name=name, **chosen)
    for _ in range(steps):
        scheme.step(gan, stream)
    scheme.quiesce()
    (side,) = scheme._roles.sides
    record = scheme.staleness_logs[side.value]
    mine = gan.d.net if side is Side.D else gan.d.snapshot.net
    mine = gan.d.strategy.weights(mine) if side is Side.D else mine.state_dict()
    total = [float(value.double().sum()) for value in mine.values()]
    found = [side.value, sorted(map(int, record.lags)), record.used, total]
    scheme.close()
    return found


def falls_back(world: World, steps: int, name: str, alarmed: str, **chosen) -> list:
    """Whether gradients of one side that explode bring both into step, and the steps that are made all the same."""
    gan, scheme, stream = begun(world, 2, name=name, fall_back=5.0, **chosen)
    scheme.step(gan, stream)
    half = scheme._session.player_step
    (side,) = scheme._roles.sides
    half._alarm = SimpleNamespace(triggers=lambda norm: side.value == alarmed and half._num_updates >= 7)
    for _ in range(steps):
        scheme.step(gan, stream)
    scheme.quiesce()
    scheme.close()
    return [side.value, scheme.staleness_logs[side.value].in_step_at is not None, half.staleness, gan.clock.step]


def resumed(world: World, folder: str, words: list[str]) -> list:
    """A run in two sessions against one in one: which players are here, and the largest difference."""
    from pathlib import Path

    from tests.distributed.cases_checkpoints import _tiny

    def run(name: str, *more: str):
        trainer = _tiny(world, str(Path(folder) / name), ["scheme.name=asynchronous", *words, *more])
        trainer.resume()
        list(trainer.run())
        return {side: one.strategy.weights(one.net) for side, one in trainer.players.items()}, trainer.clock.step

    whole, steps = run("whole")
    run("parts", "train.kimg=0.032")
    parts, again = run("parts")
    return [sorted(whole), steps == again == 4, max(distance(whole[side], parts[side]) for side in whole)]


def memory(world: World, num_g: int, steps: int) -> list:
    """Megabytes at most after the first tenth, and at the end."""
    gan, scheme, stream = begun(world, num_g)
    found = []
    for step in range(steps):
        scheme.step(gan, stream)
        if step in (steps // 10, steps - 1):
            found.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    scheme.quiesce()
    scheme.close()
    return found


def stuck(world: World) -> str:
    """What G says whose D does not play any more, and how soon: D's rank is here and answers nothing."""
    gan, scheme, stream = begun(world, 1, staleness=0)
    began, (side,) = time.monotonic(), scheme._roles.sides
    scheme.step(gan, stream)
    if side is Side.D:
        scheme.close()
        return ""
    try:
        scheme._session.player_step.limits = _hurried(scheme._session.player_step.limits)
        scheme.step(gan, stream)
    except Exception as error:
        return f"{type(error).__name__}: {error} after {time.monotonic() - began:.0f} s"
    finally:
        scheme.close()
    return "it played on"


def _hurried(pace):
    from dataclasses import replace

    return replace(pace, timeout_s=2.0)


def parts_of_a_run(world: World, folder: str, words: list[str]) -> list:
    """Which players a rank of a real run holds, and how many bytes its optimiser keeps of each."""
    from tests.distributed.cases_checkpoints import _tiny

    trainer = _tiny(world, folder, ["scheme.name=asynchronous", *words])
    saved = [event.step for event in trainer.run() if event.kind == "checkpoint"]
    kept = {
        name: sum(v.numel() for entry in p.optimizer.state.values() for v in entry.values() if torch.is_tensor(v))
        for name, p in trainer.players.items()
    }
    return [saved, kept, trainer.clock.step]
