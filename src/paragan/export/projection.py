"""Projection: the latent whose image is nearest to a given one.

As Karras et al. 2020 (StyleGAN2, appendix D), but in the latents, and by the mean squared error of
pixels at three resolutions instead of LPIPS, which needs weights of a published network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.outputs import GeneratorOutput
from paragan.export.class_labels import Label
from paragan.export.sampler import Sampler
from paragan.export.tensor_sampler import check_inputs
from paragan.game.optimizer_calls import step_if
from paragan.game.options import ScheduleOptions
from paragan.game.policy import Policy, set_lr
from paragan.layers.modes import in_mode

_STARTS = 256  # random latents
_REFINED = 4  # latents that are optimised: those with the smallest errors
_RATE = 0.05  # learning rate of Adam, which falls to 0 as a cosine
_LENGTH_WEIGHT = 1e-3  # weight of the mean of a latent's squared components, as far as it exceeds the prior's 1


@dataclass(frozen=True)
class Projection:
    """A latent, its class if there are any, its image in [-1, 1] and the mean squared error."""

    z_1Z: Tensor
    y_1: Tensor | None
    image_1CHW: Tensor
    error: float


def project(
    sampler: Sampler,
    target_CHW: Tensor,
    label: Label | None = None,
    steps: int = 300,
    seed: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Projection:
    """Return the nearest image of a generator to `target_CHW`, in [-1, 1], of the generator's shape.

    The best of some random latents, of all classes unless `label` is given, are refined by `steps` of
    Adam. Raises `ConfigError` for a generator with other inputs, or another shape.
    """
    check_inputs(sampler, "project")
    if tuple(target_CHW.shape) != sampler.info.shape:
        raise ConfigError(f"project: the image has shape {tuple(target_CHW.shape)}; pass {sampler.info.shape}")
    device = next(sampler.net.parameters()).device
    target = target_CHW[None].to(device)
    starts_BZ = sampler.latents(_STARTS, seed)
    labels = range(sampler.num_classes) if label is None and sampler.num_classes else label  # each in turn
    classes_B = None if labels is None else sampler.labels(_STARTS, labels, seed, option="label")
    images = sampler.generate(starts_BZ, classes_B, mode="eval").tensor
    best_K = _errors(images, target_CHW[None]).argsort()[:_REFINED]
    z_KZ = starts_BZ[best_K].to(device).requires_grad_()
    y_K = None if classes_B is None else classes_B[best_K].to(device)
    _refine(sampler, z_KZ, y_K, target, steps, progress)
    with in_mode(sampler.net, training=False), torch.no_grad():
        x_KCHW = _images(sampler, z_KZ, y_K).cpu()
    errors_K = (x_KCHW - target_CHW).square().mean((1, 2, 3))
    best = errors_K.argmin(0, keepdim=True)
    y_1 = None if y_K is None else y_K[best].cpu()
    return Projection(z_KZ[best].detach().cpu(), y_1, x_KCHW[best], float(errors_K[best]))


def _refine(
    sampler: Sampler, z_KZ: Tensor, y_K: Tensor | None, target: Tensor, steps: int, progress: Callable[[int], None]
) -> None:
    """Move latents towards images near the target, in place."""
    policy = Policy(lr=_RATE, schedule=ScheduleOptions(name="cosine", end=steps))
    optimizer = policy.optimizer([("latents", z_KZ)])  # Adam, the default of a policy
    with in_mode(sampler.net, training=False):
        for step in range(steps):
            x_KCHW = _images(sampler, z_KZ, y_K)
            length_K = (z_KZ.square().mean(1) - 1).relu()
            loss_K = _errors(x_KCHW, target) + _LENGTH_WEIGHT * length_K
            (z_KZ.grad,) = torch.autograd.grad(loss_K.sum(), z_KZ)
            z_KZ.grad[:, sampler.num_free :] = 0  # the length alone would move what selects a member
            set_lr(optimizer, policy, torch.tensor(step))
            step_if(torch.tensor(True), optimizer)  # always: the library steps optimisers only there
            progress(step + 1)


def _images(sampler: Sampler, z_BZ: Tensor, y_B: Tensor | None) -> Tensor:
    inputs = (z_BZ,) if y_B is None else (z_BZ, y_B)
    return GeneratorOutput.of(sampler.net(*inputs)).images


def _errors(x_BCHW: Tensor, target_1CHW: Tensor) -> Tensor:
    """Return the mean squared error of each image, over resolutions of 1, 1/2 and 1/4."""
    scales = [(x_BCHW, target_1CHW)]
    for factor in (2, 4):
        scales.append((F.avg_pool2d(x_BCHW, factor), F.avg_pool2d(target_1CHW, factor)))
    return torch.stack([(x - target).square().mean((1, 2, 3)) for x, target in scales]).mean(0)
