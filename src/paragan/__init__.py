"""paragan trains generative adversarial networks, from one CPU core to a cluster, from one config.

The names below are the library; each is imported when it is first used, so that `import paragan` leaves torch alone.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "paragan.api.scaling_manager": ("ScalingManager",),
    "paragan.config": ("RunConfig",),
    "paragan.core.errors": ("CheckpointError", "ConfigError", "DataError", "DivergedError", "ParaganError"),
    "paragan.core.protocols": ("Penalty", "PenaltyContext", "Turn"),
    "paragan.core.types": (
        "Batch",
        "Can",
        "DiscriminatorOutput",
        "GeneratorOutput",
        "LossTerms",
        "Outputs",
        "Rows",
        "Side",
        "TurnInputs",
    ),
    "paragan.export.sampler": ("SampledImages", "Sampler"),
    "paragan.api.estimator": ("Estimator",),
    "paragan.game.ema": ("Ema",),
    "paragan.game.gan": ("GAN", "Loss"),
    "paragan.game.player": ("Player",),
    "paragan.game.policy": ("Policy",),
    "paragan.game.prior": ("Prior",),
    "paragan.game.term": ("Term",),
    "paragan.layers.update_once": ("begin_update",),
    "paragan.layers.batch_norm": ("BatchNorm",),
    "paragan.layers.spectral_norm": ("spectral_norm",),
    "paragan.penalties.r1": ("r1_penalty",),
    "paragan.api.training": ("Run", "load", "train"),
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}
_MODULES = ("config",)

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"paragan.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'paragan' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
