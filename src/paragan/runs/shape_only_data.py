"""Data of a recipe, or only its shape where the files are not here; and batches of noise of that shape."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from torch import Tensor

from paragan import build
from paragan.build.batches import batch_stream
from paragan.build.data import generates_images, sample_name
from paragan.config import RunConfig
from paragan.core import registry, rng
from paragan.core.errors import ConfigError, ParaganError
from paragan.core.source import Source, TensorSpec, image_specs
from paragan.core.types import Batch, Side
from paragan.game.named_inputs import generator_arguments, input_names
from paragan.loading.loader import BatchStream, Loader


class ShapeOnlySource(Source):
    """Data set without samples: images and labels of these shapes and classes are random, equal in every batch."""

    fingerprint = "none"

    def __init__(self, tensors: Mapping[str, TensorSpec], class_names: tuple[str, ...] = ()) -> None:
        self.tensors = tensors
        self.class_names = class_names

    def __len__(self) -> int:
        return 1  # a loader repeats it for any batch, and refuses empty data

    def fetch(self, indices: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        """Return noise for as many samples, for the trial of a game before its first step."""
        draws = rng.generator("shape only")
        tensors = {}
        for name, spec in self.tensors.items():
            size = (len(indices), *spec.shape)
            if spec.dtype.is_floating_point:
                tensors[name] = (2 * torch.rand(size, generator=draws) - 1).to(spec.dtype)
            else:  # an image, or the label
                values = 256 if spec.is_image else max(1, len(self.class_names))
                tensors[name] = torch.randint(values, size, generator=draws).to(spec.dtype)
        return tensors


def shape_only_data(shape: tuple[int, ...], classes: int, condition: int | None, is_image: bool = True) -> build.Data:
    """Return data without images, of this shape. condition: its channels, of pairs. is_image: as in `build.Data`."""
    source = ShapeOnlySource(image_specs(shape, classes > 0, condition), tuple(map(str, range(classes))))
    return build.Data(train=source, held_out=source, is_image=is_image)


def data_of_shape(
    config: RunConfig, shape: tuple[int, ...], classes: int, condition: int | None, advice: str
) -> build.Data:
    """Return data without images, of this shape, for the model of a config.

    Raises `ConfigError` with this advice if G generates or takes tensors that such data do not have.
    """
    sample = sample_name(config, None)
    data = shape_only_data(shape, classes, condition, is_image=sample is None)
    if sample is None:
        return data
    problem = f"generates {sample!r}"
    if sample in data.train.tensors:
        generator = build.network_factory(config, Side.G, data.train, torch.device("cpu")).construct()
        try:
            generator_arguments(generator, data.train.tensors)
            return data
        except ConfigError:  # it says how a program renames its tensors
            problem = f"takes {', '.join(map(repr, input_names(generator)))}"
    raise ConfigError(f"a shape is of images and labels, and G of model {config.model.name} {problem}; {advice}")


def condition_channels(config: RunConfig, shape: tuple[int, ...]) -> int | None:
    """Return the channels of the condition of images of this shape; None: the model takes none."""
    if not getattr(registry.load_chosen("models", config.model).Generator, "takes_condition", False):
        return None
    channels: int = getattr(registry.load_chosen("datasets", config.data), "CONDITION_CHANNELS", shape[0])
    return channels


def open_data_or_advise(config: RunConfig) -> build.Data:
    """Open the data; `ConfigError` says that a shape can replace it, where the model generates images."""
    try:
        return build.open_data(config)
    except (ParaganError, OSError) as error:
        advice = "; or pass --shape CxHxW and --classes N, which need no data" if generates_images(config, None) else ""
        raise ConfigError(f"{error}{advice}") from None


def noise_batches(config: RunConfig, data: build.Data, device: torch.device, batch: int) -> Iterator[Batch]:
    """Yield one batch for step after step: noise with the shapes of images, or the first batch of other data."""
    if data.is_image or isinstance(data.train, ShapeOnlySource):
        source = ShapeOnlySource(data.train.tensors, data.train.class_names)
        stream: BatchStream = Loader(source, batch, config.seed, device)
    else:
        config = replace(config, train=replace(config.train, batch=batch))
        stream = batch_stream(config, data.train, config.seed, device)
    real = next(stream)
    stream.close()
    for step in count():
        yield replace(real, rows=replace(real.rows, step=step))
