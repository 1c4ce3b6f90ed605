"""paragan trains generative adversarial networks (GANs), from one CPU core to a cluster, from one config.

    import paragan as pg

    run = pg.train("digits", {"train.kimg": 2})
    run.sample(16)

Every public name is imported when it is first used, so that `import paragan` does not import torch.

Training:
    train, load         Train a recipe; open a trained generator.
    Run, Sampler        What they return: a run folder to read, and a generator to sample from.
    SampledImages       The images of `Sampler.sample`.
    RunConfig, config   All settings of a run; `config.load("digits", ["train.kimg=2"])` reads a recipe.
    Estimator           A generator and a discriminator from memory.
    ScalingManager      The training loop of the ParaGAN poster, with a loop of the program's own.

Pieces for a training loop:
    GAN, Player, Loss   The game: two players, their networks and optimisers, and the adversarial loss.
    Policy, Prior, Ema  How a player is optimised, what latents it is given, the average of its weights.
    Snapshot            A frozen copy of a player to play against.
    Scheme, Strategy    The order of updates in a step; how one network is laid out over ranks.
    Opponent, Network   What a player plays against; a module and how it is called.
    Cell                One pair of a cellular grid.
    PlayerOptions, OptimizerOptions, ScheduleOptions, EmaOptions

Values:
    Batch, Rows, Side, Can, Turn, TurnInputs, Outputs, GeneratorOutput, DiscriminatorOutput, LossTerms, Update, Report

Losses, penalties and metrics:
    Term, r1_penalty    A penalty from a function; R1 for a plain training loop.
    Penalty, PenaltyContext, Augment, Source: the interfaces of outside code.
    R1Penalty, R2Penalty, GradientPenalty, ConsistencyPenalty, LeCamPenalty, OrthogonalPenalty, PathLengthPenalty,
    FeatureMatchingPenalty, L1Penalty, AuxiliaryPenalty, ContrastivePenalty, DataToDataPenalty, each with its options:
    R1Options, ...
    FrechetDistance, Coverage

Layers:
    BatchNorm, spectral_norm, begin_update

Errors:
    ParaganError is the base of ConfigError, DataError, CheckpointError, DivergedError and RankError.

`paragan list` prints every model, loss, penalty and recipe; `paragan config digits --explain` every setting.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; the same names as in _PUBLIC
    from paragan import config as config
    from paragan.api.estimator import Estimator as Estimator
    from paragan.api.scaling_manager import ScalingManager as ScalingManager
    from paragan.api.training import Run as Run, load as load, train as train
    from paragan.coevolution.cell import Cell as Cell
    from paragan.config import RunConfig as RunConfig
    from paragan.core.errors import (
        CheckpointError as CheckpointError,
        ConfigError as ConfigError,
        DataError as DataError,
        DivergedError as DivergedError,
        ParaganError as ParaganError,
        RankError as RankError,
    )
    from paragan.core.protocols import (
        Augment as Augment,
        Network as Network,
        Opponent as Opponent,
        Penalty as Penalty,
        PenaltyContext as PenaltyContext,
        Source as Source,
        Strategy as Strategy,
        Turn as Turn,
    )
    from paragan.core.types import (
        Batch as Batch,
        Can as Can,
        DiscriminatorOutput as DiscriminatorOutput,
        GeneratorOutput as GeneratorOutput,
        LossTerms as LossTerms,
        Outputs as Outputs,
        Report as Report,
        Rows as Rows,
        Side as Side,
        TurnInputs as TurnInputs,
        Update as Update,
    )
    from paragan.export.sampler import SampledImages as SampledImages, Sampler as Sampler
    from paragan.game.ema import Ema as Ema
    from paragan.game.gan import GAN as GAN, Loss as Loss
    from paragan.game.options import (
        EmaOptions as EmaOptions,
        OptimizerOptions as OptimizerOptions,
        PlayerOptions as PlayerOptions,
        ScheduleOptions as ScheduleOptions,
    )
    from paragan.game.player import Player as Player
    from paragan.game.policy import Policy as Policy
    from paragan.game.prior import Prior as Prior
    from paragan.game.scheme import Scheme as Scheme
    from paragan.game.snapshot import Snapshot as Snapshot
    from paragan.game.term import Term as Term
    from paragan.layers.batch_norm import BatchNorm as BatchNorm
    from paragan.layers.spectral_norm import spectral_norm as spectral_norm
    from paragan.layers.update_once import begin_update as begin_update
    from paragan.metrics.coverage import Metric as Coverage
    from paragan.metrics.frechet import Metric as FrechetDistance
    from paragan.penalties.auxiliary import Options as AuxiliaryOptions, Penalty as AuxiliaryPenalty
    from paragan.penalties.consistency import Options as ConsistencyOptions, Penalty as ConsistencyPenalty
    from paragan.penalties.contrastive import Options as ContrastiveOptions, Penalty as ContrastivePenalty
    from paragan.penalties.data_to_data import Options as DataToDataOptions, Penalty as DataToDataPenalty
    from paragan.penalties.feature_matching import Options as FeatureMatchingOptions, Penalty as FeatureMatchingPenalty
    from paragan.penalties.gradient_penalty import Options as GradientPenaltyOptions, Penalty as GradientPenalty
    from paragan.penalties.l1 import Options as L1Options, Penalty as L1Penalty
    from paragan.penalties.lecam import Options as LeCamOptions, Penalty as LeCamPenalty
    from paragan.penalties.orthogonal import Options as OrthogonalOptions, Penalty as OrthogonalPenalty
    from paragan.penalties.path_length import Options as PathLengthOptions, Penalty as PathLengthPenalty
    from paragan.penalties.r1 import Options as R1Options, Penalty as R1Penalty, r1_penalty as r1_penalty
    from paragan.penalties.r2 import Options as R2Options, Penalty as R2Penalty

__version__ = "0.1.0"

_PUBLIC = {  # module -> its public names; NEW=OLD for a name of another spelling there
    "paragan.api.training": (
        "Run",
        "load",
        "train",
    ),
    "paragan.api.estimator": ("Estimator",),
    "paragan.api.scaling_manager": ("ScalingManager",),
    "paragan.config": ("RunConfig",),
    "paragan.export.sampler": (
        "SampledImages",
        "Sampler",
    ),
    "paragan.core.errors": (
        "CheckpointError",
        "ConfigError",
        "DataError",
        "DivergedError",
        "ParaganError",
        "RankError",
    ),
    "paragan.game.gan": (
        "GAN",
        "Loss",
    ),
    "paragan.game.player": ("Player",),
    "paragan.game.policy": ("Policy",),
    "paragan.game.prior": ("Prior",),
    "paragan.game.ema": ("Ema",),
    "paragan.game.snapshot": ("Snapshot",),
    "paragan.game.scheme": ("Scheme",),
    "paragan.game.term": ("Term",),
    "paragan.game.options": (
        "EmaOptions",
        "OptimizerOptions",
        "PlayerOptions",
        "ScheduleOptions",
    ),
    "paragan.coevolution.cell": ("Cell",),
    "paragan.core.types": (
        "Batch",
        "Can",
        "DiscriminatorOutput",
        "GeneratorOutput",
        "LossTerms",
        "Outputs",
        "Report",
        "Rows",
        "Side",
        "TurnInputs",
        "Update",
    ),
    "paragan.core.protocols": (
        "Augment",
        "Network",
        "Opponent",
        "Penalty",
        "PenaltyContext",
        "Source",
        "Strategy",
        "Turn",
    ),
    "paragan.penalties.auxiliary": (
        "AuxiliaryOptions=Options",
        "AuxiliaryPenalty=Penalty",
    ),
    "paragan.penalties.consistency": (
        "ConsistencyOptions=Options",
        "ConsistencyPenalty=Penalty",
    ),
    "paragan.penalties.contrastive": (
        "ContrastiveOptions=Options",
        "ContrastivePenalty=Penalty",
    ),
    "paragan.penalties.data_to_data": (
        "DataToDataOptions=Options",
        "DataToDataPenalty=Penalty",
    ),
    "paragan.penalties.feature_matching": (
        "FeatureMatchingOptions=Options",
        "FeatureMatchingPenalty=Penalty",
    ),
    "paragan.penalties.gradient_penalty": (
        "GradientPenaltyOptions=Options",
        "GradientPenalty=Penalty",
    ),
    "paragan.penalties.l1": (
        "L1Options=Options",
        "L1Penalty=Penalty",
    ),
    "paragan.penalties.lecam": (
        "LeCamOptions=Options",
        "LeCamPenalty=Penalty",
    ),
    "paragan.penalties.orthogonal": (
        "OrthogonalOptions=Options",
        "OrthogonalPenalty=Penalty",
    ),
    "paragan.penalties.path_length": (
        "PathLengthOptions=Options",
        "PathLengthPenalty=Penalty",
    ),
    "paragan.penalties.r1": (
        "R1Options=Options",
        "R1Penalty=Penalty",
        "r1_penalty",
    ),
    "paragan.penalties.r2": (
        "R2Options=Options",
        "R2Penalty=Penalty",
    ),
    "paragan.metrics.coverage": ("Coverage=Metric",),
    "paragan.metrics.frechet": ("FrechetDistance=Metric",),
    "paragan.layers.batch_norm": ("BatchNorm",),
    "paragan.layers.spectral_norm": ("spectral_norm",),
    "paragan.layers.update_once": ("begin_update",),
}
_HOME: dict[str, tuple[str, str]] = {}  # public name -> module, name there
for _module, _names in _PUBLIC.items():
    for _entry in _names:
        _HOME[_entry.partition("=")[0]] = (_module, _entry.rpartition("=")[2])
_MODULES = ("config",)

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name in _MODULES:
        return import_module(f"paragan.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'paragan' has no attribute {name!r}")
    module, original = _HOME[name]
    return getattr(import_module(module), original)


def __dir__() -> list[str]:
    return sorted(__all__)
