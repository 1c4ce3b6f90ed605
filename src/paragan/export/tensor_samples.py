"""Samples of a generator of named tensors: any number of rows, from drawn latents and from data."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import SupportsIndex

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.settings_tree import shorten
from paragan.core.source import Source
from paragan.core.types import Batch, Rows
from paragan.evaluation.fixed_samples import fetch_batch
from paragan.evaluation.fixed_tensors import is_pictured
from paragan.export.class_labels import check_count
from paragan.export.sampled_images import SampledImages
from paragan.game import latents
from paragan.game.network import CalledNetwork
from paragan.game.prior import Prior
from paragan.game.sampling import Mode, generate_tensors

Labels = SupportsIndex | Sequence[SupportsIndex]


def sample_tensors(
    net: nn.Module, prior: Prior, source: Source | None, n: int, labels: Labels | None = None, mode: Mode = "eval"
) -> SampledImages | Tensor:
    """Sample n rows of a generator of named tensors; images (1 or 3, H, W) are `SampledImages`.

    Latents are drawn as for images: equal seeds give equal samples, and those of a smaller n are the first of a larger
    one. Other inputs are those of the samples of `source` in their order, repeated if n is larger. labels: for the
    input `label`, one or several, in turn. Raises `ConfigError` for labels that G cannot take, and for several lengths.
    """
    check_count(n)
    if labels is not None and "label" not in (prior.generator_arguments or ()):
        raise ConfigError("labels: this generator has no input 'label'; leave it out")
    label_K = None if labels is None else _class_numbers(labels)
    generator = CalledNetwork(module=net, place="data" if labels is None else "labels")
    blocks = []
    for first in range(0, n, latents.BLOCK):
        # the keys of `latents.draw_block`, so that the draws are those of images
        rows = Rows(step=first // latents.BLOCK, first=0, count=min(latents.BLOCK, n - first), total=latents.BLOCK)
        numbers = np.arange(first, first + rows.count)
        # a stream has length 0, and repeats its first samples itself
        batch = Batch(rows) if source is None else fetch_batch(source, rows, prior, numbers % (len(source) or n))
        if label_K is not None:  # then there is a source: without one G takes the latent alone
            label_B = label_K[torch.from_numpy(numbers) % len(label_K)].to(prior.device)
            batch = replace(batch, tensors={**batch.tensors, "label": _in_form_of(batch.tensors["label"], label_B)})
        inputs = prior.feed("sample", batch).fake_inputs
        blocks.append(generate_tensors(generator, inputs, mode, prior.seed, first).images.cpu())
    if len({block.shape[1:] for block in blocks}) > 1:
        raise ConfigError("sample: samples of this generator differ in length; call it with inputs of equal length")
    samples = torch.cat(blocks)
    is_image = samples.dim() == 4 and is_pictured(tuple(samples.shape[1:]))
    return SampledImages(samples.float().clamp(-1, 1)) if is_image else samples


def _class_numbers(labels: Labels) -> Tensor:
    with suppress(TypeError, ValueError, RuntimeError):
        label_K = torch.as_tensor(labels).reshape(-1)
        if len(label_K) and not (label_K.is_floating_point() or label_K.is_complex()):
            return label_K
    raise ConfigError(f"labels is {shorten(labels)}; pass the number of a class, or several, such as [0, 1]")


def _in_form_of(label: Tensor, numbers_B: Tensor) -> Tensor:
    """Return numbers of classes in the form of the data's labels: one number for each sample, or a one-hot row."""
    if label.shape == numbers_B.shape:
        return numbers_B
    classes = label.shape[-1]
    if label.dim() != 2 or not ((numbers_B >= 0) & (numbers_B < classes)).all():
        raise ConfigError(f"labels: the data's labels are rows {tuple(label.shape[1:])}; pass numbers below {classes}")
    return F.one_hot(numbers_B.long(), classes).to(label.dtype)
