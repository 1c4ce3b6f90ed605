"""Generators in files of published projects: the settings, shapes and weights that names and shapes there tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from paragan.build.initial_weights import list_differences
from paragan.checkpoint.layouts import ProjectWeights, possible_weights, project_layouts
from paragan.checkpoint.weight_files import open_weights
from paragan.config import RunConfig, parse_recipe
from paragan.core import registry
from paragan.core.command import program_command
from paragan.core.errors import CheckpointError, ConfigError, ParaganError
from paragan.core.layout import Shape, shapes_of
from paragan.core.network_factory import Model, construct_network
from paragan.core.printable import join_some
from paragan.core.types import Side
from paragan.export.generator_file import GeneratorInfo
from paragan.export.sampler import Sampler

_MAX_NAMED = 4  # tensors in a message
_MAX_CLASSES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class PublishedGenerator:
    """A generator of a published project. module: has its class. origin: whose it is, for messages."""

    config: RunConfig
    module: Model
    info: GeneratorInfo
    weights: dict[str, Tensor]
    origin: str


class OneDirection(nn.Module):
    """One translator of a generator with several: a condition (B, C, H, W) to images of its size."""

    latent = 0
    num_classes = 0
    takes_condition = True

    def __init__(self, generator: nn.Module, direction: str) -> None:
        super().__init__()
        self.input_multiple = getattr(generator, "input_multiple", 1)
        self.translator: nn.Module = getattr(generator, "directions")[direction]  # noqa: B009 of some modules

    def forward(self, z_BZ: Tensor | None, y_B: Tensor | None = None, condition: Tensor | None = None) -> Tensor:
        images: Tensor = self.translator(condition)
        return images


def check_whole(sampler: Sampler, path: Path) -> None:
    """Raise `ConfigError` for one direction of a generator, which an exported file cannot hold."""
    if isinstance(sampler.net, OneDirection):
        raise ConfigError(
            f"export: {path} has one direction of {sampler.config.model.name}, and an exported file has both; "
            "use `apply` on it, or start a run from it by g.init"
        )


def read_published(path: Path, settings: Sequence[str]) -> PublishedGenerator:
    """Read a generator from a file of another program, if it is one of a published project.

    settings: words written over the settings that the file shows. Raises `CheckpointError` if it is none, and if a
    tensor of either has no partner.
    """
    stored = open_weights([path], "file")
    candidates = list(possible_weights(stored))
    problems = []
    for weights in candidates:
        if weights.side is Side.G:
            try:
                return _read(path, weights, settings)
            except CheckpointError as error:
                problems.append(error)
    if problems:
        raise problems[0]
    kind = f"a discriminator of {candidates[0].project}" if candidates else "weights of no known project"
    known = ", ".join(layout.PROJECT for layout in project_layouts())
    raise CheckpointError(
        f"{path} holds {kind} (names like {join_some(list(stored), limit=2)}); pass a generator of {known}, a run "
        f"folder or a file of `{program_command()} export`; a run may start from other weights by g.init and d.init"
    )


def _read(path: Path, weights: ProjectWeights, settings: Sequence[str]) -> PublishedGenerator:
    config = _config(path, weights, settings)
    module: Model = registry.load_module("models", config.model.name)  # type: ignore[assignment]
    if weights.classes > _MAX_CLASSES:
        raise CheckpointError(f"{path}: {weights.classes:,} classes, the limit is {_MAX_CLASSES:,}; pass another file")
    if weights.direction:
        module = SimpleNamespace(Generator=partial(_one_direction, module, weights.direction))  # type: ignore[assignment]
    names = tuple(map(str, range(weights.classes)))
    info = GeneratorInfo(shape=weights.shape, class_names=names, step=0, images=0, condition_channels=weights.condition)
    texts = list_differences(_shapes(path, config, module, info), shapes_of(weights.tensors))
    count = len(weights.tensors)
    if texts:
        listed = ", ".join(f"model.{key}={value}" for key, value in weights.settings.items())
        raise CheckpointError(
            f"{path}: {count} tensors of {weights.project} that show {listed}, but {len(texts)} tensors are only in "
            f"the file or only in such a generator: {join_some(texts, _MAX_NAMED)}; to use the others, start a run "
            "with g.init and g.init.partial=true"
        )
    assumed = ", ".join(f"data.{key}={value}" for key, value in weights.data.items() if key != "name")
    origin = f"of {weights.project}, all {count} tensors{'; not in the file: ' if assumed else ''}{assumed}"
    return PublishedGenerator(config=config, module=module, info=info, weights=weights.tensors, origin=origin)


def _one_direction(
    module: Model, direction: str, options: object, shape: tuple[int, int, int], num_classes: int
) -> nn.Module:
    both = (*shape[:2], 2 * shape[2])  # images of both kinds lie side by side
    return OneDirection(module.Generator(options, both, num_classes), direction)


def _config(path: Path, weights: ProjectWeights, settings: Sequence[str]) -> RunConfig:
    tree = {"data": weights.data or {"name": "folder"}, "model": weights.settings, "loss": "hinge"}
    return parse_recipe(json.dumps(tree, default=dict), str(path), (), settings)


def _shapes(path: Path, config: RunConfig, module: Model, info: GeneratorInfo) -> dict[str, Shape]:
    """Return the shapes of a generator, without memory for it."""
    classes = len(info.class_names)
    try:
        with torch.device("meta"):
            net = construct_network(
                module.Generator, config.model.options, info.shape, classes, info.condition_channels
            )
        return shapes_of(net.state_dict())
    except (RuntimeError, TypeError, LookupError, OverflowError, ParaganError) as error:
        raise CheckpointError(f"{path}: invalid model ({' '.join(str(error).split())[:150]})") from None
