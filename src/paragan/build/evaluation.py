"""Construction of what scores the generators of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from paragan.build.data import Data
from paragan.config import RunConfig
from paragan.core.capabilities import NAMED_TENSORS, NETWORKS_FROM_MEMORY, check_capabilities
from paragan.core.errors import ConfigError
from paragan.core.from_memory import FROM_MEMORY
from paragan.core.source import Source, describe_tensors
from paragan.evaluation import scorer as scorers
from paragan.evaluation.evaluator import Evaluator
from paragan.evaluation.options import EvaluationOptions
from paragan.evaluation.score import Score
from paragan.features.base.extractor import ExtractorContext
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sampling import MODE_DESCRIPTIONS, sampling_network

if TYPE_CHECKING:
    from paragan.engine.background_scores import BackgroundScores

# beginnings of the variables that make a process one of several ranks
_OF_TORCHRUN = ("RANK", "LOCAL_", "WORLD_SIZE", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")
_OF_OUR_LAUNCHER = ("PARAGAN_LAUNCHER", "PARAGAN_LOCK", "PARAGAN_STORE")


def extractor_context(
    data: Data, folder: Path, log: Callable[[str], None], device: torch.device, **rest: Any
) -> ExtractorContext:
    """Return what the extractor of a run may read.

    folder: of the run. rest: as in `ExtractorContext`.
    """
    train, held_out = data.scored
    rest |= {"device": device, "log": log, "is_cached": data.is_packaged}
    # the name is set where the extractor is built
    return ExtractorContext(name="", train=train, held_out=held_out, folder=folder / "judge", **rest)


def scorer(
    config: RunConfig, data: Data, prior: Prior, context: ExtractorContext
) -> Callable[[Player, Prior], Score] | None:
    """Return the function that scores a generator player; None: scoring is off."""
    if not data.is_image:
        return _tensor_scorer(config, data, prior, context)
    return scorers.build_scorer(resolved(config, context.train), context)


def _tensor_scorer(
    config: RunConfig, data: Data, prior: Prior, context: ExtractorContext
) -> Callable[[Player, Prior], Score] | None:
    """Return what scores samples of named tensors: images by an extractor, others by the metrics that are named."""
    options = config.evaluation
    sample = prior.sample_name
    if options.features is None and options.metrics is None:
        return None
    check_capabilities(NAMED_TENSORS, config.needs)  # these are not scored in another process
    from paragan.evaluation import tensor_images
    from paragan.evaluation.tensor_evaluator import TensorEvaluator

    if options.features is None:
        inputs = prior.generator_arguments or ()
        return TensorEvaluator(held_out=data.held_out, options=options, sample=sample, inputs=inputs, log=context.log)
    if not tensor_images.is_scored(data.train, sample):
        tensors = describe_tensors(data.train.tensors)
        raise ConfigError(
            f"evaluation.features={options.features.name} scores images (1 or 3, H, W) of uint8 or in [-1, 1], but a "
            f"sample has {tensors}; set it to null, and name evaluation.metrics for scores"
        )
    train, held_out, samples = tensor_images.both_splits(data.train, data.held_out, sample)
    split_note = {"held_out": "a fifth of the samples in training"} if data.held_out is data.train else {}
    # of images: metrics that are named are those of its features
    evaluator_of = evaluator(config, replace(context, train=train, held_out=held_out))
    assert evaluator_of is not None

    def score(player: Player, prior: Prior) -> Score:
        generator = sampling_network(player, samples.argument)  # names the data in messages
        drawn = tensor_images.sample_inputs(generator, samples, prior, options.num_images, options.sampling)
        values = evaluator_of().score(drawn, is_sharded=player.is_sharded)
        sampling = f"{MODE_DESCRIPTIONS[options.sampling]}, inputs of samples"
        return replace(values, protocol={**values.protocol, "sampling": sampling, **split_note})

    return score


def evaluator(config: RunConfig, context: ExtractorContext) -> Callable[[], Evaluator] | None:
    """Return a factory of the evaluator of generated images; None: scoring is off."""
    return scorers.build_evaluator(resolved(config, context.train), context)


def resolved(config: RunConfig, train: Source) -> EvaluationOptions:
    """Return the evaluation options, with the extractor that `auto` selects."""
    options = config.evaluation
    if options.features is None:
        return options
    features = scorers.resolve_features(options, config.data.name, train.shape)
    return replace(options, features=features)


def background_scores(config: RunConfig, folder: Path) -> BackgroundScores | None:
    """Return what scores the checkpoints of a run in another process; None: the trainer does.

    The process has the threads of this one, and none of its variables as a rank.
    """
    options = config.evaluation
    if options.mode == "inline" or options.features is None:
        return None
    if config.model.name == FROM_MEMORY:
        check_capabilities(NETWORKS_FROM_MEMORY, config.needs)
    from paragan.core.answering_processes import source_environment
    from paragan.engine.background_scores import FOLDER, BackgroundScores
    from paragan.evaluation.scoring_process import ScoringProcess

    threads = str(torch.get_num_threads())
    program = (sys.executable, "-P", "-m", "paragan.runs.score_checkpoints")
    command = (*program, str(folder.resolve()), threads, str(os.getpid()))
    of_a_rank = (*_OF_TORCHRUN, *_OF_OUR_LAUNCHER)
    rank_free = {name: value for name, value in source_environment().items() if not name.startswith(of_a_rank)}
    process = ScoringProcess(command, rank_free | {"OMP_NUM_THREADS": threads}, folder / FOLDER / "log.txt")
    return BackgroundScores(run=folder, process=process)
