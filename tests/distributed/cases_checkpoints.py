"""What ranks do with checkpoints, and whether they notice that they no longer hold the same."""

import errno
import os
import signal
from math import prod
from pathlib import Path

import torch
from torch.distributed.tensor import Shard, distribute_tensor

from paragan.checkpoint import writer as module
from paragan.checkpoint.writer import CheckpointWriter
from paragan.config import read_recipe
from paragan.core.dist import World
from paragan.core.errors import ParaganError
from paragan.core.layout import Pieces, StoredTensors, TensorLayout, layout_of, local_shard
from paragan.core.types import Side
from paragan.engine.consistency import ConsistencyCheck
from paragan.evaluation.score import Score
from paragan.game.state import restore, state_of
from paragan.parallel.base.fully_shard import mesh_of
from paragan.schemes import synchronous
from tests.distributed.cases_laws import alone, strategy
from tests.laws.matrix_gan import BATCH, STEPS, Switches, game, player, stream
from tests.laws.small_gan import distance
from tests.tiny_run import SMALL, TINY

ON = Switches(bn=True, groups=True)
SAVED = 2  # of STEPS steps


def build(world: World, g: str, d: str):
    """Under hsdp two ranks are a host: pieces inside it, copies across. Pipelines have two stages, and data copies."""
    options: dict = {
        "hsdp": {"host": 2},
        "pipeline": {"stages": min(world.size, 2), "micro_batches": 1, "data": "zero3"},
    }
    options["tensor"] = {"ranks": min(world.size, 2), "rows": 3}
    seats = (
        player(side, ON, strategy(name, options.get(name)), world) for side, name in zip(Side, (g, d), strict=True)
    )
    return game(ON, *seats)


def play_on(world: World, gan, first: int, last: int) -> None:
    batches = stream(ON, *world.share(BATCH))
    for step in range(last):
        if step < first:
            next(batches)  # one batch a step
        else:
            synchronous.step(gan, batches)


def save(world: World, folder: str, g: str, d: str) -> list[str]:
    """Train the first steps and save; the files' names."""
    gan = build(world, g, d)
    play_on(world, gan, 0, SAVED)
    states = {seat.side.value: state_of(seat) for seat in (gan.g, gan.d)}
    groups = {name: pieces for name, (pieces, _) in states.items()}
    values = {name: counts for name, (_, counts) in states.items()}
    path = CheckpointWriter(folder=Path(folder), world=world).save(SAVED, groups, values)
    return sorted(os.listdir(path))


def go_on(world: World, folder: str, g: str, d: str) -> float:
    """Read, train the last steps; the largest difference from a run that never stopped, in one process."""
    gan = build(world, g, d)
    found = CheckpointWriter(folder=Path(folder), world=world).newest()
    for seat in (gan.g, gan.d):
        restore(seat, found.groups[seat.side.value], found.values[seat.side.value])
    play_on(world, gan, SAVED, STEPS)
    plain = alone(ON, "synchronous")
    nets = ((gan.g, gan.g.net), (gan.d, gan.d.net), (gan.g, gan.g.ema.net))
    return max(distance(seat.strategy.weights(net), one) for (seat, net), one in zip(nets, plain, strict=False))


def stopped_and_not(world: World, folder: str, steps: int, g: str, d: str) -> bool:
    """Whether a rank that saves, and starts anew from there, ends with the same bits as one that does not stop."""
    straight = build(world, g, d)
    play_on(world, straight, 0, SAVED + steps)
    save(world, folder, g, d)
    gan = build(world, g, d)
    found = CheckpointWriter(folder=Path(folder), world=world).newest()
    for seat in (gan.g, gan.d):
        restore(seat, found.groups[seat.side.value], found.values[seat.side.value])
    play_on(world, gan, SAVED, SAVED + steps)
    pairs = ((gan.g.net, straight.g.net), (gan.d.net, straight.d.net), (gan.g.ema.net, straight.g.ema.net))
    mine = [zip(a.state_dict().values(), b.state_dict().values(), strict=True) for a, b in pairs]
    return all(torch.equal(local_shard(a), local_shard(b)) for both in mine for a, b in both)


def held(world: World, step: int) -> dict[str, Pieces]:
    """Some rows on each rank, a number on the first."""
    box = TensorLayout.rows((6, 2), world.rank, world.size)
    tensors = {"net/w": box.cut(torch.arange(12.0).view(6, 2)), "net/one": torch.tensor(float(step))}
    return {"g": Pieces(tensors, {"net/w": box})}


def layout_is_the_shard(world: World, shape: list[int], dim: int) -> bool:
    """Whether the layout of a tensor that torch has cut along an axis cuts the same."""
    whole = torch.arange(prod(shape)).view(shape)
    mine = distribute_tensor(whole, mesh_of(world), [Shard(dim)])
    box = layout_of(mine)
    return torch.equal(box.cut(whole), local_shard(mine)) and not box.is_whole


def full_disk(world: World, folder: str, rank: int, step: int) -> str:
    """What a rank says when the disk of one of them is full."""

    def full(tensors, path):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = module.save_file
    module.save_file = full if world.rank == rank else before
    try:
        CheckpointWriter(folder=Path(folder), world=world).save(step, held(world, step), {})
    except ParaganError as error:
        return str(error)
    finally:
        module.save_file = before
    return "saved"


def one_unseen(world: World, folder: str, rank: int) -> str:
    """One rank has another file system: its folder is another one."""
    mine = Path(folder) / ("elsewhere" if world.rank == rank else "here")
    try:
        CheckpointWriter(folder=mine, world=world).save(1, held(world, 1), {})
    except ParaganError as error:
        return str(error)
    return "saved"


def killed_in_a_save(world: World, folder: str, rank: int) -> None:
    """After it has written its file."""
    if world.rank == rank:
        module.file_sha256 = lambda path: os.kill(os.getpid(), signal.SIGKILL)
    CheckpointWriter(folder=Path(folder), world=world).save(2, held(world, 2), {})


def save_held(world: World, folder: str, step: int) -> None:
    CheckpointWriter(folder=Path(folder), world=world).save(step, held(world, step), {"step": step})


def read_held(world: World, folder: str) -> list:
    """Step, values and both tensors of the newest; what was said."""
    said: list[str] = []
    found = CheckpointWriter(folder=Path(folder), log=said.append, world=world).newest()
    stored: StoredTensors = found.groups["g"]
    return [found.step, found.values, stored["net/w"].tolist(), stored["net/one"].item(), len(said)]


def differ(world: World, what: str, rank: int, g: str, d: str) -> str:
    """What the check says where one rank has something else."""
    gan = build(world, g, d)
    play_on(world, gan, 0, 1)
    agreement, players = ConsistencyCheck(world, 1), {"g": gan.g, "d": gan.d}
    agreement.check(gan.clock, players)  # all is well
    gan.clock.step += 1
    if world.rank == rank:
        with torch.no_grad():
            _spoil(gan, what)
    try:
        agreement.check(gan.clock, players)
    except ParaganError as error:
        return f"{error.exit_code} {error}"
    return "equal"


def _spoil(gan, what: str) -> None:
    if what == "a bit":
        gan.d.net.blocks[1].layer.parametrizations.weight.original.flatten()[3:4].view(torch.int64).bitwise_xor_(1)
    elif what == "places":
        weight = gan.g.net.embed.weight
        weight[[0, 1]] = weight[[1, 0]]
    elif what == "a buffer":
        gan.d.net.blocks[0].norm.norm.mean += 1e-9
    elif what == "the average":
        gan.g.ema.net.gamma += 1e-9
    elif what == "the rate":
        gan.g.optimizer.param_groups[0]["lr"] *= 2
    elif what == "the clock":
        gan.clock.images += 1
    elif what == "a piece":
        local_shard(gan.g.net.blocks[0].layer.parametrizations.weight.original).add_(1.0)


def diverged(world: World, folder: str, rank: int) -> list:
    """What is said where a piece on one rank is no longer finite, and what there is afterwards."""
    trainer = _tiny(world, folder, ["g.strategy=zero3"])
    list(trainer.run(num_steps=1))
    with torch.no_grad():
        if world.rank == rank:
            local_shard(next(trainer.players["g"].net.parameters()).detach()).fill_(float("nan"))
    try:
        trainer.save()
    except ParaganError as error:
        return [type(error).__name__, str(error)]
    return ["saved", ""]


def _tiny(world: World, folder: str, words: list[str]):
    from paragan import build

    config = read_recipe("digits", [*TINY, *SMALL, *words])
    return build.trainer(config, Path(folder), print, stop=lambda: False, world=world)


def run(world: World, folder: str, words: list[str], scores: list[float]) -> list:
    """A tiny run whose scores are given; steps it saved, and rank 0's view of what is left."""
    trainer = _tiny(world, folder, ["every.score_kimg=0.016", "every.save_kimg=0.032", *words])
    trainer.resume()
    left = iter(scores if world.is_main else [9.0 - n for n in range(len(scores))])  # the others may believe otherwise
    trainer.score = lambda player, prior: Score(
        metrics={"fd": next(left), "other": 1.0}, num_images=10, protocol={"by": "hand"}
    )
    saved = [event.step for event in trainer.run() if event.kind == "checkpoint"]
    return [saved, int(trainer.clock.step), trainer.saved_at]
