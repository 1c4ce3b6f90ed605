"""Training of generative adversarial networks (GANs): one CPU core to a cluster, one config.

    import paragan as pg

    run = pg.train("digits", {"train.kimg": 2})
    run.sample(16)

Every public name is imported when it is first used, so that `import paragan` does not import torch.

The main ones: `train` and `load` for recipes, `Trainer` for networks and tensors from memory, and `GAN`, `Player`,
`Turn` and `Scheme` for custom games. docs/reference/api.md describes all of them, `dir(paragan)` lists them, `paragan
list` models, losses and recipes, `paragan config digits --explain` settings.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; `_read_public_names` reads it, too
    from paragan import config as config, loading as loading
    from paragan.adapters.loha import Adapter as LohaAdapter, Options as LohaOptions
    from paragan.adapters.lora import Adapter as LoraAdapter, Options as LoraOptions
    from paragan.api.estimator import Estimator as Estimator
    from paragan.api.names import list_models as list_models, list_names as list_names, list_recipes as list_recipes
    from paragan.api.scaling_manager import ScalingManager as ScalingManager
    from paragan.api.trained import load as load
    from paragan.api.trainer import Trainer as Trainer
    from paragan.api.training import Run as Run, train as train
    from paragan.augment.ada import Augment as AdaptiveAugment, Options as AdaptiveAugmentOptions
    from paragan.augment.diffaugment import Augment as DiffAugment, Options as DiffAugmentOptions
    from paragan.augment.flow_noise import Augment as FlowNoise, Options as FlowNoiseOptions
    from paragan.balancers.adaptive_weight import Balancer as AdaptiveWeightBalancer, Options as AdaptiveWeightOptions
    from paragan.balancers.gradient_balancer import Balancer as GradientBalancer, Options as GradientBalancerOptions
    from paragan.balancers.gradient_normalization import (
        Balancer as GradientNormalizationBalancer,
        Options as GradientNormalizationOptions,
    )
    from paragan.config import RunConfig as RunConfig
    from paragan.core.balancer import Balancer as Balancer, TermGradients as TermGradients
    from paragan.core.capabilities import Capability as Capability
    from paragan.core.errors import (
        CheckpointError as CheckpointError,
        ConfigError as ConfigError,
        DataError as DataError,
        DivergedError as DivergedError,
        ParaganError as ParaganError,
        RankError as RankError,
    )
    from paragan.core.metric import (
        Direction as Direction,
        Metric as Metric,
        Needs as Needs,
        SampleFeatures as SampleFeatures,
        SamplePairs as SamplePairs,
    )
    from paragan.core.outputs import (
        DiscriminatorOutput as DiscriminatorOutput,
        GeneratorOutput as GeneratorOutput,
        Outputs as Outputs,
    )
    from paragan.core.protocols import (
        Augment as Augment,
        Loss as Loss,
        Network as Network,
        Opponent as Opponent,
        Penalty as Penalty,
        PenaltyContext as PenaltyContext,
        Turn as Turn,
    )
    from paragan.core.source import EncodedSource as EncodedSource, Source as Source, TensorSpec as TensorSpec
    from paragan.core.types import (
        Batch as Batch,
        LossTerms as LossTerms,
        Report as Report,
        Rows as Rows,
        Side as Side,
        TurnInputs as TurnInputs,
        Update as Update,
    )
    from paragan.core.weight_schedule import WeightSchedule as WeightSchedule
    from paragan.engine.training_loop import TrainingLoop as TrainingLoop
    from paragan.export.sampled_images import SampledImages as SampledImages
    from paragan.export.sampler import Sampler as Sampler
    from paragan.extensions.grid.cell import Cell as Cell
    from paragan.extensions.large_models.parallel.pipeline import (
        Options as PipelineOptions,
        Strategy as PipelineStrategy,
    )
    from paragan.extensions.large_models.parallel.tensor import Options as TensorOptions, Strategy as TensorStrategy
    from paragan.extensions.parameter_server.schemes.parameter_server import (
        Options as ParameterServerOptions,
        Scheme as ParameterServerScheme,
    )
    from paragan.extensions.planning.plan import Plan as Plan
    from paragan.extensions.planning.plan_run import plan as plan
    from paragan.features.base.extractor import (
        ExtractorContext as ExtractorContext,
        FeatureExtractor as FeatureExtractor,
    )
    from paragan.features.base.weight_files import build_with_weights as build_with_weights
    from paragan.game.ema import Ema as Ema
    from paragan.game.gan import GAN as GAN
    from paragan.game.options import (
        AdversarialOptions as AdversarialOptions,
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
    from paragan.game.trained_part import add_adapters as add_adapters, select_trained as select_trained
    from paragan.layers.adapter import merge_adapters as merge_adapters
    from paragan.layers.batch_norm import BatchNorm as BatchNorm
    from paragan.layers.discriminators import Discriminators as Discriminators
    from paragan.layers.frozen import Frozen as Frozen
    from paragan.layers.spectral_norm import spectral_norm as spectral_norm
    from paragan.layers.update_once import begin_update as begin_update
    from paragan.losses.hinge import loss as hinge_loss
    from paragan.losses.hinge_both import loss as hinge_both_loss
    from paragan.losses.least_squares import loss as least_squares_loss
    from paragan.losses.minimax import loss as minimax_loss
    from paragan.losses.nonsaturating import Options as NonsaturatingOptions, loss as nonsaturating_loss
    from paragan.losses.relativistic import loss as relativistic_loss
    from paragan.losses.relativistic_average import (
        Options as RelativisticAverageOptions,
        loss as relativistic_average_loss,
    )
    from paragan.losses.wasserstein import loss as wasserstein_loss
    from paragan.metrics.base.mean import PairMetric as PairMetric
    from paragan.metrics.coverage import Metric as Coverage
    from paragan.metrics.fd import Metric as FrechetDistance
    from paragan.models.base.diffusers_folder import load_diffusers as load_diffusers
    from paragan.optim.adabelief import Optimizer as AdaBelief
    from paragan.optim.lamb import Optimizer as Lamb
    from paragan.optim.optimistic_adam import Optimizer as OptimisticAdam
    from paragan.parallel.base.strategy import Strategy as Strategy
    from paragan.parallel.ddp import Strategy as DDPStrategy
    from paragan.parallel.hsdp import Options as HSDPOptions, Strategy as HSDPStrategy
    from paragan.parallel.local_sgd import Options as LocalSGDOptions, Strategy as LocalSGDStrategy
    from paragan.parallel.none import Strategy as NoneStrategy
    from paragan.parallel.zero1 import Strategy as ZeRO1Strategy
    from paragan.parallel.zero2 import Strategy as ZeRO2Strategy
    from paragan.parallel.zero3 import Strategy as ZeRO3Strategy
    from paragan.penalties.approximate_r1 import Options as ApproximateR1Options, Penalty as ApproximateR1Penalty
    from paragan.penalties.approximate_r2 import Options as ApproximateR2Options, Penalty as ApproximateR2Penalty
    from paragan.penalties.auxiliary import Options as AuxiliaryOptions, Penalty as AuxiliaryPenalty
    from paragan.penalties.base.perceptual_loss import PerceptualLoss as PerceptualLoss
    from paragan.penalties.codebook import Options as CodebookOptions, Penalty as CodebookPenalty
    from paragan.penalties.consistency import Options as ConsistencyOptions, Penalty as ConsistencyPenalty
    from paragan.penalties.contrastive import Options as ContrastiveOptions, Penalty as ContrastivePenalty
    from paragan.penalties.cycle import Options as CycleOptions, Penalty as CyclePenalty
    from paragan.penalties.data_to_data import Options as DataToDataOptions, Penalty as DataToDataPenalty
    from paragan.penalties.distillation import Options as DistillationOptions, Penalty as DistillationPenalty
    from paragan.penalties.distribution_matching import (
        Options as DistributionMatchingOptions,
        Penalty as DistributionMatchingPenalty,
    )
    from paragan.penalties.fake_flow_matching import (
        Options as FakeFlowMatchingOptions,
        Penalty as FakeFlowMatchingPenalty,
    )
    from paragan.penalties.feature_matching import Options as FeatureMatchingOptions, Penalty as FeatureMatchingPenalty
    from paragan.penalties.feature_matching_l1 import (
        Options as FeatureMatchingL1Options,
        Penalty as FeatureMatchingL1Penalty,
    )
    from paragan.penalties.flow_matching import Options as FlowMatchingOptions, Penalty as FlowMatchingPenalty
    from paragan.penalties.gradient_penalty import Options as GradientPenaltyOptions, Penalty as GradientPenalty
    from paragan.penalties.l1 import Options as L1Options, Penalty as L1Penalty
    from paragan.penalties.lecam import Options as LeCamOptions, Penalty as LeCamPenalty
    from paragan.penalties.log_mel import Options as LogMelOptions, Penalty as LogMelPenalty
    from paragan.penalties.orthogonal import Options as OrthogonalOptions, Penalty as OrthogonalPenalty
    from paragan.penalties.path_length import Options as PathLengthOptions, Penalty as PathLengthPenalty
    from paragan.penalties.perceptual import Options as PerceptualOptions, Penalty as PerceptualPenalty
    from paragan.penalties.r1 import Options as R1Options, Penalty as R1Penalty, r1_penalty as r1_penalty
    from paragan.penalties.r2 import Options as R2Options, Penalty as R2Penalty
    from paragan.runs.evaluate import RunScore as RunScore, evaluate_run as evaluate
    from paragan.schemes.asynchronous import Options as AsynchronousOptions, Scheme as AsynchronousScheme
    from paragan.schemes.dmd2 import step as dmd2_step
    from paragan.schemes.extragradient import Scheme as ExtragradientScheme
    from paragan.schemes.shared_fakes import Scheme as SharedFakesScheme
    from paragan.schemes.skipping import Options as SkippingOptions, Scheme as SkippingScheme
    from paragan.schemes.synchronous import step as synchronous_step
    from paragan.storage.exported_network import ExportedNetwork as ExportedNetwork

__version__ = "0.2.0"


def _read_public_names() -> dict[str, tuple[str, str]]:
    """Return module and original name of every name that the block for type checkers imports."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    homes: dict[str, tuple[str, str]] = {}
    for line in block.body:
        if isinstance(line, ast.ImportFrom):
            homes |= {str(name.asname): (str(line.module), name.name) for name in line.names}
    return homes


_HOMES = _read_public_names()

# Not `__all__`: `help(paragan)` would describe every class with all that it inherits of torch, 19,000 lines.
_PUBLIC_NAMES = ["__version__", *(name for name, (module, _) in _HOMES.items() if module != "paragan")]

_DEFINED = {  # registry -> what its files define, for the names of files that the block above does not name
    "losses": ("Options",),
    "penalties": ("Penalty", "Options"),
    "balancers": ("Balancer", "Options"),
    "augment": ("Augment", "Options"),
    "parallel": ("Strategy", "Options"),
    "schemes": ("Scheme", "Options"),
}


def _names_of_files() -> dict[str, tuple[str, str, str]]:
    """Return registry, file and original name by public name: `wave_loss` of losses/wave.py, `WavePenalty`."""
    from paragan.core import registry

    files = {f"{name}_loss": ("losses", name, "loss") for name in registry.names("losses")}
    for category, originals in _DEFINED.items():
        for name in registry.names(category):
            for original in originals:
                files.setdefault(f"{name.title().replace('_', '')}{original}", (category, name, original))
    return files


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name in _HOMES:
        module, original = _HOMES[name]
        return import_module(f"paragan.{original}") if module == "paragan" else getattr(import_module(module), original)
    if not name.startswith("_") and name in (files := _names_of_files()):
        category, file, original = files[name]
        return getattr(import_module("paragan.core.registry").load_module(category, file), original)
    raise AttributeError(f"module 'paragan' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_PUBLIC_NAMES)
