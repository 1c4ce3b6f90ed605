"""Construction of the trainer of a config, and of its writers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from paragan.build.batches import batches
from paragan.build.data import Data, open_data
from paragan.build.evaluation import background_scores, extractor_context, scorer
from paragan.build.execution import check_execution, loop_class
from paragan.build.game import gan, scheme
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
from paragan.game.prior import Prior
from paragan.hardware import device as devices, heap

if TYPE_CHECKING:
    from paragan.evaluation.fixed_tensors import FixedTensors


def trainer(
    config: RunConfig,
    folder: Path,
    log: Callable[[str], None],
    stop: Callable[[], bool],
    reading: bool = False,
    world: World = ALONE,
    model: Model | None = None,
) -> TrainingLoop:
    """Return the trainer of a config, at step 0. reading: it never writes. model: as in `network_factory`."""
    device = devices.select_device(config.train.threads) if world.group is None else world.device
    data = open_data(config, model)
    data.train.not_finite = {}  # names of samples with NaN go there, and training goes on; None: the first is an error
    heap.return_large_blocks(device, data.train.shape if data.is_image else ())
    run_scheme = scheme(config)
    roles = run_scheme.roles(world, config.train.timeout_s)
    game = gan(config, data, device, roles, model)
    run_scheme.refuse(game, data.train.tensors)
    if not reading:
        check_execution(config, device, run_scheme, game, world.size)
    describe_micro_batches(game.slots.values(), log)
    stops = (lambda: False) if roles.is_split else stop  # `stop` is collective, and only ranks of G score
    context = extractor_context(data, folder, log, device, must_save=not reading, world=roles.batch_world, stop=stops)
    loop = loop_class(config, roles, reading)(
        gan=game,
        scheme=run_scheme,
        batches=batches(config, data, device, roles, game.prior.reads_batches),
        checkpoints=CheckpointWriter(folder=folder / "checkpoints", keep=config.every.keep, log=log, world=world),
        images=round(config.train.kimg * 1000),
        every=config.every,
        score=scorer(config, data, game.prior, context),
        stop=stop,
        telemetry=Telemetry(data.train if data.is_image else None, data.held_out, batch=config.train.batch),
        fixed_samples=_fixed_samples(config, data, game.prior),
        background=None if reading else background_scores(config, folder),
    )
    _load_fixed_weights(config, loop, model, log)
    return loop


def _load_fixed_weights(config: RunConfig, loop: TrainingLoop, model: Model | None, log: Callable[[str], None]) -> None:
    """Load the initial weights of players that train a part: checkpoints hold only the weights that train."""
    if any(player.trains_part for player in config.player_options.values()) and config.initial_paths:
        from paragan.build.initial_weights import load_initial_weights  # few runs need it

        load_initial_weights(config, loop, model, log)


def _fixed_samples(config: RunConfig, data: Data, prior: Prior) -> FixedSamples | FixedTensors | None:
    if not data.is_image:
        from paragan.evaluation.fixed_tensors import FixedTensors, is_pictured

        is_shown = is_pictured(data.train.tensors[prior.sample_name].shape)
        return FixedTensors(data.held_out, config.evaluation.sampling) if is_shown else None
    return FixedSamples(config.evaluation.sampling, data.held_out if data.train.has_pairs else None)


def writers(config: RunConfig, folder: Path, step: int) -> MultiWriter:
    """Open the writers of a run that resumes from the checkpoint of a step; -1: it has none."""
    kinds = {writer.name: registry.load_module("writers", writer.name).Writer for writer in config.writers}
    return MultiWriter((w.name, kinds[w.name](w.options, folder, step)) for w in config.writers)
