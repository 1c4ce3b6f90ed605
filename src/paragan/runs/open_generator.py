"""Opening of a generator from a run folder or an exported file, or of the discriminator of a run, without data."""

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from paragan import build
from paragan.build.initial_weights import merged_generator
from paragan.checkpoint import generator_state
from paragan.checkpoint.generator_state import GeneratorState
from paragan.checkpoint.weight_files import is_torch_file
from paragan.config import RunConfig, parse_recipe, read_recipe, to_tree
from paragan.config.sections import outside_of_run
from paragan.core import registry, rng
from paragan.core.command import program_command
from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.from_memory import FROM_MEMORY
from paragan.core.layout import shapes_of
from paragan.core.network_factory import Model, construct_network
from paragan.core.outside_code import CodeFolder
from paragan.core.printable import print_to_stderr
from paragan.core.tensor_game import LATENT
from paragan.core.types import Side
from paragan.export import generator_file
from paragan.export.bundle import read_score
from paragan.export.discriminator import ExportedDiscriminator
from paragan.export.generator_file import GeneratorInfo
from paragan.export.sampler import Sampler
from paragan.export.tensor_sampler import TensorSampler
from paragan.game.mixture import mixture_for_weights
from paragan.game.named_inputs import input_names
from paragan.game.prior import latent_of
from paragan.game.state import check_same
from paragan.hardware.device import device_by_name
from paragan.layers.init import initialise
from paragan.layers.modes import remember_modes
from paragan.runs.open_run import config_path, read_with_steps
from paragan.runs.published_generator import read_published

_EXPORTED = "generator.safetensors"  # of a folder that `paragan export` wrote


def open_generator(
    path: Path,
    trust: bool | CodeFolder = False,
    best: bool = False,
    log: Callable[[str], None] = print_to_stderr,
    model: Callable[[RunConfig], Model] | None = None,
    device: str | torch.device = "auto",
    *,
    steps: int | None = None,
    settings: Sequence[str] = (),
) -> Sampler:
    """Open the generator of a run folder or an exported file; the options are `paragan.load`'s.

    steps: of its solver, in place of `model.steps`. settings: words, of a published project's file. log: receives a
    line for every damaged checkpoint that is skipped. model: returns networks from memory, if the config names none.
    Raises `CheckpointError` for anything but a run folder with a checkpoint, an exported file and a generator of a
    published project, `ConfigError` for an invalid config.
    """
    outside = outside_of_run(trust)
    if (path / _EXPORTED).is_file():
        path = path / _EXPORTED
    if path.is_file():
        if best:
            raise ConfigError(f"best is for run folders, and {path} is a file; leave it out")
        return _open_file(path, outside, model, device, steps=steps, settings=settings)
    _check_no_settings(path, settings)
    source = str(config_path(path, f", or a file written by `{program_command()} export`"))
    config = read_with_steps(lambda words: read_recipe(source, words, outside), steps)
    module = _model_module(config, model, str(path))
    state = generator_state.read_best(path) if best else generator_state.read_newest(path, log)
    info = _generator_info(state)
    weights = _merged_weights(config, module, info, state, log) if config.g.trains_part else state.weights
    sampler = _sampler(config, module, weights, info, str(state.path), device)
    sampler = replace(sampler, score=read_score(path, best))
    if config.data.name == FROM_MEMORY:
        return sampler
    return replace(sampler, held_out=lambda: build.open_data(config).held_out)


def open_discriminator(path: Path, trust: bool | CodeFolder = False, best: bool = False) -> ExportedDiscriminator:
    """Open the discriminator of a run folder at its newest or best checkpoint.

    trust: as of `paragan.load`. Raises `ConfigError` for a grid, whose cells have several, and for one of which the run
    trains only a part; `CheckpointError` as `open_generator`.
    """
    config = read_recipe(str(config_path(path)), [], outside_of_run(trust))
    if config.grid is not None or config.d.trains_part:
        reason = "trains a part of its discriminator" if config.grid is None else "is a grid and has several"
        raise ConfigError(f"export: {path} {reason}; --player d is for runs with one whole discriminator")
    module = _model_module(config, None, str(path))
    state = generator_state.read_best(path, "d") if best else generator_state.read_newest(path, print_to_stderr, "d")
    info = _generator_info(state)
    with torch.random.fork_rng(devices=[]):  # constructors draw random numbers
        net = _construct(config, module.Discriminator, info)
    check_same(shapes_of(state.weights), shapes_of(net.state_dict()), str(state.path))
    _fill(net, state.weights, str(state.path))
    net.eval().requires_grad_(False)
    return ExportedDiscriminator(net=net, info=info, tree=to_tree(config))


def _merged_weights(
    config: RunConfig, module: Model, info: GeneratorInfo, state: GeneratorState, log: Callable[[str], None]
) -> dict[str, Tensor]:
    """Return the weights of the whole generator of a run that trains a part of it."""
    with torch.random.fork_rng(devices=[]):
        rng.seed_torch(rng.key(config.seed, "construct", Side.G.value))
        net = _construct(config, module.Generator, info)
        initialise(net, config.seed, Side.G.value)
        return merged_generator(net, config, state, log).state_dict()


def _model_module(config: RunConfig, model: Callable[[RunConfig], Model] | None, where: str) -> Model:
    """Return the module of `models/`, or the networks from memory if the run has no module."""
    if config.data.name == FROM_MEMORY and model is None:
        raise ConfigError(config.data.options.missing())
    if config.model.name == FROM_MEMORY:
        if model is None:
            raise ConfigError(f"{where}: {config.model.options.missing()}")
        return model(config)
    module: Any = registry.load_module("models", config.model.name)
    if model is not None:
        raise ConfigError(
            f"generator is not used: the config of {where} names model.name={config.model.name}; leave generator out"
        )
    return module


def _generator_info(state: GeneratorState) -> GeneratorInfo:
    """Return the facts in a checkpoint. Raises `CheckpointError` if one is missing."""
    try:
        _ = state.values["players"]  # without which the checkpoint is none of a run
        clock = state.values["clock"]
        return GeneratorInfo.read({**state.values["model"], **clock})
    except KeyError as error:
        raise CheckpointError(f"checkpoint {state.path}: {error} is missing; train anew with --fresh") from None
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"checkpoint {state.path}: state.json: invalid value ({error})") from None


def _open_file(
    path: Path,
    outside: Container[str],
    model: Callable[[RunConfig], Model] | None,
    device: str | torch.device,
    *,
    steps: int | None,
    settings: Sequence[str],
) -> Sampler:
    if is_torch_file(path) or generator_file.is_foreign(path):
        if model is not None:
            raise ConfigError(f"generator is not used: the networks of {path} are known by name; leave generator out")
        published = read_published(path, [*settings, *([] if steps is None else [f"model.steps={steps}"])])
        config, module, info = published.config, published.module, published.info
        return replace(_sampler(config, module, published.weights, info, str(path), device), origin=published.origin)
    _check_no_settings(path, settings)
    file = generator_file.read(path)
    if isinstance(outside, CodeFolder):
        outside = replace(outside, used=file.code)
    config = read_with_steps(partial(parse_recipe, file.config, f"{path} (config)", outside), steps)
    module = _model_module(config, model, str(path))
    return replace(_sampler(config, module, file.weights, file.info, str(path), device), score=file.score)


def _check_no_settings(path: Path, settings: Sequence[str]) -> None:
    if settings:
        raise ConfigError(f"settings are for files of published projects; {path} has its own; leave them out")


def _sampler(
    config: RunConfig,
    module: Model,
    weights: dict[str, Tensor],
    info: GeneratorInfo,
    where: str,
    device: str | torch.device,
) -> Sampler:
    sample = "sample" if config.data.name == FROM_MEMORY else getattr(module, "SAMPLE", None)
    if sample is None and len(info.shape) != 3:
        raise CheckpointError(f"{where}: the shape {list(info.shape)} is not that of images; train anew with --fresh")

    def make_member() -> nn.Module:
        # constructors draw random numbers; the caller's random state is preserved
        with torch.random.fork_rng(devices=[]):
            return _construct(config, module.Generator, info)

    def make_net() -> nn.Module:
        return make_member() if config.grid is None else mixture_for_weights(make_member, weights)

    # a built-in model: check sizes before allocating memory
    if "." not in config.model.name and config.model.name != FROM_MEMORY:
        _check_sizes(make_net, weights, where)
    net = make_net()
    check_same(shapes_of(weights), shapes_of(net.state_dict()), where)
    _fill(net, weights, where)
    if sample is None or LATENT in input_names(net):
        latent_of(net)  # raises an error for a network that does not say how many latents it takes
    remember_modes(net)
    net = net.to(device_by_name(device)).eval().requires_grad_(False)
    if sample is not None:
        return TensorSampler(net=net, info=info, seed=config.seed, config=config, sample_name=sample)
    return Sampler(net=net, info=info, seed=config.seed, config=config)


def _construct(config: RunConfig, kind: Callable[..., nn.Module], info: GeneratorInfo) -> nn.Module:
    num_classes = len(info.class_names)
    return construct_network(kind, config.model.options, info.shape, num_classes, info.condition_channels)


def _fill(net: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Load the weights; refuse other dtypes, which a copy would convert silently."""
    for name, own in net.state_dict().items():
        if weights[name].is_floating_point() != own.is_floating_point():
            raise CheckpointError(f"{where}: {name} is {weights[name].dtype} instead of {own.dtype}; export it again")
    try:
        net.load_state_dict(weights)
    except RuntimeError as error:
        text = " ".join(str(error).split())[:100]
        raise CheckpointError(f"{where}: weights cannot be read ({text}); export it again") from None


def _check_sizes(make: Callable[[], nn.Module], weights: dict[str, Tensor], where: str) -> None:
    """Compare tensor sizes on the meta device: a foreign config may request layers of any size."""
    num_left = 4 * len(weights) + 100  # parametrised weights are registered more than once

    def count(*_: object) -> None:
        nonlocal num_left
        num_left -= 1
        if num_left < 0:
            raise RuntimeError("more layers than there are weights")

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"):
            check_same(shapes_of(weights), shapes_of(make().state_dict()), where)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise CheckpointError(f"{where}: invalid model ({str(error).splitlines()[0][:100]})") from None
    finally:
        hook.remove()
