"""Construction of both splits of the data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from paragan.config import RunConfig
from paragan.core import registry
from paragan.core.errors import ConfigError, DataError
from paragan.core.interrupt import stopping_at_once
from paragan.core.network_factory import Model
from paragan.core.source import DerivedSource, Source, describe_tensors, untrained_classes
from paragan.core.tensor_game import TensorGame
from paragan.game.needs import check_paired_data


@dataclass(frozen=True, kw_only=True)
class Data:
    """Both splits of the data set of a run."""

    train: Source
    held_out: Source
    flip: bool = False  # mirror half of the training images
    is_image: bool = True  # False: networks on named tensors, which may be images
    is_packaged: bool = False  # data of a program may change while its fingerprint does not

    @property
    def num_classes(self) -> int:
        return len(self.train.class_names)

    @property
    def scored(self) -> tuple[Source, Source]:
        """Both splits with the labels that `data.labels=false` hides, from which a judge learns."""
        train = self.train.source if isinstance(self.train, UnlabelledSource) else self.train
        held_out = self.held_out.source if isinstance(self.held_out, UnlabelledSource) else self.held_out
        return train, held_out


class UnlabelledSource(DerivedSource):
    """A `Source` of the images of another source, without labels."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.class_names = ()
        self.tensors = {name: spec for name, spec in source.tensors.items() if name != "label"}
        self.fingerprint = f"{source.fingerprint} without labels"

    def decode(self, encoded: Sequence[bytes], rows: Any, places: Any = None, seed: int = 0) -> dict[str, Tensor]:
        decoded = self.source.decode(encoded, rows, places, seed)
        return {name: tensor for name, tensor in decoded.items() if name != "label"}


def open_data(config: RunConfig, model: Model | None = None) -> Data:
    """Open both splits; `DataError` for invalid files. model: objects of a program; their data is used."""
    if isinstance(model, TensorGame):
        return _data_of_program(model)
    module = registry.load_chosen("datasets", config.data)
    options = config.data.options
    with stopping_at_once():
        train, held_out = (module.source(options, split) for split in ("train", "held_out"))
    train, held_out = _with_labels(config, train, held_out)
    _add_held_out_notices(train, held_out)
    flip = getattr(options, "flip", False)
    is_image = train.is_image and generates_images(config, model)
    is_packaged = config.data.name in registry.names("datasets")
    return Data(train=train, held_out=held_out, flip=flip, is_image=is_image, is_packaged=is_packaged)


def _data_of_program(model: TensorGame) -> Data:
    from paragan.evaluation.tensor_images import of_trained_classes

    held_out, _ = of_trained_classes(model.source, model.held_out)
    _add_held_out_notices(model.source, held_out)
    return Data(train=model.source, held_out=held_out, is_image=False)


def _add_held_out_notices(train: Source, held_out: Source) -> None:
    """Add what only the held-out samples have to the notices of training, which a run prints."""
    for line in held_out.notices:
        named = f"held_out: {line.removeprefix('data: ')}"
        if line not in train.notices and named not in train.notices:  # a program may run twice on one source
            train.notices += (named,)


def _with_labels(config: RunConfig, train: Source, held_out: Source) -> tuple[Source, Source]:
    """Return both splits with the classes that are trained on, or none."""
    if config.data.options.labels:
        train, held_out = _with_trained_classes(train, held_out)
        train.notices += _label_notices(config, train)
    elif train.class_names:
        train, held_out = UnlabelledSource(train), UnlabelledSource(held_out)
    return train, held_out


def _with_trained_classes(train: Source, held_out: Source) -> tuple[Source, Source]:
    """Leave out the classes without training images, of which G cannot learn anything, and say so."""
    sizes = train.class_sizes()
    notices = untrained_classes(train.class_names, sizes, held_out.class_sizes())
    if not notices:
        return train, held_out
    from paragan.loading.subset import ClassSubset

    classes = np.flatnonzero(sizes).tolist()
    num_before = len(held_out)
    train, held_out = ClassSubset(train, classes), ClassSubset(held_out, classes)
    train.reading = train.reading.replace(f"holds out {num_before:,}", f"holds out {len(held_out):,}", 1)
    if not len(held_out):
        raise DataError("data: no class has training and held-out images; add images, or pass data.labels=false")
    train.notices += notices
    return train, held_out


def _label_notices(config: RunConfig, train: Source) -> tuple[str, ...]:
    """Return a line if labels are drawn otherwise than real samples are."""
    if config.data.options.label_distribution == "uniform" or not train.class_names:
        return ()
    if not train.class_sizes():
        return ("labels are drawn uniformly, because the data does not count its classes (Source.class_sizes)",)
    if config.data.options.balance == "classes" and len(set(train.class_sizes())) > 1:
        return ("data.balance=classes balances real samples; data.label_distribution=uniform balances G's labels, too",)
    return ()


def sample_name(config: RunConfig, model: Model | None) -> str | None:
    """Return the name of the tensor that G generates; None for images.

    A file of `models/` for other tensors has it as `SAMPLE`.
    """
    if isinstance(model, TensorGame):
        return model.discriminator_arguments[0]
    module = model or registry.load_chosen("models", config.model)
    return getattr(module, "SAMPLE", None)


def generates_images(config: RunConfig, model: Model | None) -> bool:
    """Return whether G generates images, not a tensor of another name."""
    return sample_name(config, model) is None


def has_outside_networks(config: RunConfig, model: Model | None) -> bool:
    """Return whether networks come from outside code: validated, with constructor weights."""
    return model is not None or "." in config.model.name


def check_samples(config: RunConfig, data: Data, model: Model | None) -> None:
    """Raise `ConfigError` for data without the tensor that the model generates, and labels that it does not draw."""
    if isinstance(model, TensorGame) and config.data.options.label_distribution != "data":
        raise ConfigError("data.label_distribution: G has the labels of its batch; leave it out, or use data.balance")
    sample = sample_name(config, model)
    tensors = data.train.tensors
    if not (sample is None and data.is_image) and sample not in tensors:
        raise ConfigError(
            f"model {config.model.name} generates {'images' if sample is None else f'the tensor {sample!r}'}, but a "
            f"sample of data {config.data.name} has {describe_tensors(tensors)}; choose another model or other data (a "
            f"file of networks names the tensor that G generates: SAMPLE = {next(iter(tensors))!r})"
        )


def check_pairs(config: RunConfig, data: Data, model: Model | None) -> None:
    """Raise `ConfigError` for pairs without a model for them, or the reverse."""
    if not data.is_image:
        return
    has_pairs = data.train.has_pairs
    networks = model or registry.load_chosen("models", config.model)
    takes = getattr(networks.Generator, "takes_condition", None)
    if takes is not None or not has_outside_networks(config, model):  # outside code need not say what it takes
        check_paired_data(bool(takes), config.model.name, has_pairs, config.data.name)
    if has_pairs and config.augment is not None:
        raise ConfigError(
            f"augment={config.augment.name} is not supported for pairs, because it would not move "
            "the condition with its image; leave it out, and use data.flip and data.load_size"
        )
    for penalty in config.penalties:
        if not has_pairs and registry.load_module("penalties", penalty.name).Penalty.needs_pairs:
            raise ConfigError(
                f"penalty {penalty.name} needs data of pairs, which {config.data.name} is not; leave it out"
            )
