"""Checks that the ranks of a run agree before they train."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from paragan import __version__, build
from paragan.config import RunConfig, compare, dump, parse_recipe
from paragan.core.collective import run_on_main
from paragan.core.dist import World
from paragan.core.errors import CheckpointError, ConfigError
from paragan.engine.training_loop import TrainingLoop

_MAY_DIFFER = ("data.path", "devices", "evaluation.features.weights")  # per host


def needs_group(config: RunConfig) -> bool:
    """Return whether a player's strategy uses a process group even in a single process.

    Not with players in threads, which would call collectives in any order.
    """
    if build.scheme(config).has_threads:
        return False
    strategies = [player.strategy for player in config.player_options.values()]
    # None is `none` in a single process
    return any(strategy is not None and strategy.name != "none" for strategy in strategies)


def check_same_config(config: RunConfig, world: World) -> None:
    """Raise the same `ConfigError` on all ranks if versions or settings differ. Collective."""
    if world.size == 1:
        return
    local = {"paragan": __version__, "torch": torch.__version__, "config": dump(config)}
    ranks = world.gather(local)
    for name in ("paragan", "torch"):
        values = [rank[name] for rank in ranks]
        _check_equal(f"{name} is", values, "install the same version on all hosts")
    configs = [parse_recipe(rank["config"], f"rank {n}") for n, rank in enumerate(ranks)]
    differences = [compare(configs[0], other) for other in configs]  # values of rank 0 and of each rank, by key
    for difference in differences:
        for key, (first, _) in difference.items():
            if key not in _MAY_DIFFER:
                values = [of_rank[key][1] if key in of_rank else first for of_rank in differences]
                _check_equal(f"{key} is", values, "give the same command on all hosts")


def check_batch(config: RunConfig, world: World) -> None:
    """Raise `ConfigError` if a rank or micro-batch would have no row of the global batch."""
    batch = config.train.batch
    share = batch // world.size
    if not share:
        raise ConfigError(
            f"train.batch={batch} is less than one image for each of {world.size} ranks; raise train.batch"
        )
    for side, player in config.player_options.items():
        if world.size > 1 and player.micro_batches > share:
            raise ConfigError(
                f"{side}.micro_batches={player.micro_batches} is more than the {share} images of "
                f"a rank (train.batch={batch} on {world.size} ranks); pass at most {share}"
            )


def check_same_state(trainer: TrainingLoop, world: World) -> None:
    """Raise `CheckpointError` if ranks have different steps or data, as without a shared disk."""
    ranks = world.gather([trainer.clock.step, trainer.batches.source.fingerprint])
    steps = [step for step, _ in ranks]
    data = [fingerprint for _, fingerprint in ranks]
    cure = "put the run folder on a disk that all hosts share"
    _check_equal("the newest checkpoint is of step", steps, cure, CheckpointError)
    _check_equal("the data is", data, "give all hosts the same data", CheckpointError)


def check_shared_folder(address: str, folder: Path, world: World) -> None:
    """Raise `CheckpointError` if other hosts do not see the working folder of a run at an address.

    address: empty for a run that is in a folder of its own. Collective.
    """
    if not address or world.local_size == world.size:
        return
    mark = folder / f".shared-{world.gather(uuid.uuid4().hex)[0]}.tmp"
    run_on_main(world, mark.touch)
    is_seen = world.gather(mark.exists())
    run_on_main(world, mark.unlink)
    if not all(is_seen):
        raise CheckpointError(
            f"rank {is_seen.index(False)} does not see {folder} of rank 0, the working folder of {address}; set "
            "PARAGAN_CACHE to a folder that all hosts share"
        )


def _check_equal(what: str, values: Sequence[Any], cure: str, error: type[Exception] = ConfigError) -> None:
    """Raise the error unless the values of all ranks are equal. cure: what to do."""
    differing = [n for n, value in enumerate(values) if value != values[0]]
    if differing:
        other = values[differing[0]]
        named = [n for n in differing if values[n] == other]
        numbers = f"{', '.join(map(str, named[:8]))}{', …' if len(named) > 8 else ''}"
        on = f"rank{'s' if len(named) > 1 else ''} {numbers}"
        raise error(f"ranks differ: {what} {values[0]} on rank 0 and {other} on {on}; {cure}")
