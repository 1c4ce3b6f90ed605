"""Choice of the training loop by `rollback`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from paragan.config import RunConfig
from paragan.core.errors import ConfigError
from paragan.core.roles import Roles
from paragan.engine.rollback import RollbackLoop
from paragan.engine.training_loop import TrainingLoop


def loop_class(config: RunConfig, is_concurrent: bool, roles: Roles, period: int) -> Callable[..., TrainingLoop]:
    """Return the constructor of the loop; refuse a run whose checkpoints are not all of its state.

    is_concurrent: of the scheme. period: steps between two at which all ranks have equal weights.
    """
    if config.rollback is None:
        return TrainingLoop
    name = config.scheme.name
    if is_concurrent or roles.is_split or name == "parameter_server":
        problem = f"rollback does not support scheme {name}, where players or ranks are ahead of others"
        raise ConfigError(f"{problem}; use scheme synchronous, or leave rollback out")
    if period > 1:
        raise ConfigError("rollback does not support local_sgd; use strategy ddp, or leave rollback out")
    return partial(RollbackLoop, rollback=config.rollback)
