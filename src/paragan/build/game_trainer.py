"""Construction of the trainer of a config, and of its writers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from paragan.build.data import Data, batches, open_data
from paragan.build.evaluation import background_scores, extractor_context, never, scorer
from paragan.build.game import gan, scheme
from paragan.build.loop import check_execution, loop_class, with_bases
from paragan.build.players import describe_micro_batches
from paragan.checkpoint.writer import CheckpointWriter
from paragan.config import RunConfig
from paragan.core import registry
from paragan.core.dist import ALONE, World
from paragan.core.network_factory import Model
from paragan.engine.multi_writer import MultiWriter
from paragan.engine.telemetry import Telemetry
from paragan.engine.training_loop import TrainingLoop
from paragan.evaluation.fixed_samples import FixedSamples
from paragan.evaluation.fixed_tensors import FixedTensors, is_pictured
from paragan.game.prior import Prior
from paragan.hardware import device as devices, heap


def trainer(
    config: RunConfig,
    folder: Path,
    say: Callable[[str], None],
    stop: Callable[[], bool],
    reading: bool = False,
    world: World = ALONE,
    model: Model | None = None,
) -> TrainingLoop:
    """Return the trainer for `config`, at step 0; writes nothing.

    reading: it never needs to write. model: as in `maker`.
    """
    device = devices.select_device(config.train.threads) if world.group is None else world.device
    found = open_data(config, model)
    heap.return_large_blocks(device, found.train.shape if found.is_image else ())
    order = scheme(config)
    roles = order.roles(world, config.train.timeout_s)
    game = gan(config, found, device, roles, model)
    order.refuse(game, found.train.tensors)
    if not reading:
        check_execution(config, device, order, game, world.size)
    describe_micro_batches(game.slots.values(), say)
    stops = never if roles.is_split else stop
    context = extractor_context(
        config, found, folder, say, device, must_save=not reading, world=roles.batch_world, stop=stops
    )
    loop = loop_class(config, roles, reading)(
        gan=game,
        scheme=order,
        batches=batches(config, found, device, roles, game.prior.reads_batches),
        checkpoints=CheckpointWriter(folder=folder / "checkpoints", keep=config.every.keep, say=say, world=world),
        images=round(config.train.kimg * 1000),
        every=config.every,
        score=scorer(config, found, game.prior, context),
        stop=stop,
        telemetry=Telemetry(found.train if found.is_image else None, found.held_out, batch=config.train.batch),
        fixed_samples=_fixed_samples(config, found, game.prior),
        background=None if reading else background_scores(config, folder),
    )
    return with_bases(config, loop, model, say)


def _fixed_samples(config: RunConfig, found: Data, prior: Prior) -> FixedSamples | FixedTensors | None:
    """Return the sample sheets of a run; None for samples without pictures."""
    if not found.is_image:
        is_shown = is_pictured(found.train.tensors[prior.arguments[0]].shape)
        return FixedTensors(found.held_out, config.evaluation.sampling) if is_shown else None
    return FixedSamples(config.evaluation.sampling, found.held_out if found.has_pairs else None)


def writers(config: RunConfig, folder: Path, step: int) -> MultiWriter:
    """Open the writers of a run that has finished `step` steps."""
    made = {}
    for writer in config.writers:
        kind = registry.load_module("writers", writer.name).Writer
        made[writer.name] = kind(writer.options, folder, step)
    return MultiWriter(made.items())
