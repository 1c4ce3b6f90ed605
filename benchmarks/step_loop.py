"""Plain loops for `benchmarks/step`: one update of D and one of G as users of torch write them.

Adam as torch gives it, float32, two calls of D, no graph into G in D's turn, D frozen in G's turn. With labels each
turn draws images of its own; from conditions they are made once for both, as in the code of pix2pix's authors.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Wrap = Callable[[nn.Module, torch.optim.Optimizer], tuple[nn.Module, torch.optim.Optimizer]]


def unwrapped(net: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
    return net, optimizer


def labelled(
    g: nn.Module,
    d: nn.Module,
    x_BCHW: Tensor,
    y_B: Tensor,
    latent: int,
    wrap: Wrap = unwrapped,
    backward: Callable[[Tensor], object] = Tensor.backward,
) -> Callable[[], None]:
    """A call that makes one step with the hinge loss. wrap, backward: of a library for several devices."""
    critic = d  # in G's turn, where a wrapper would wait for gradients of D
    (g, adam_g), (d, adam_d) = (wrap(n, torch.optim.Adam(n.parameters(), 2e-4, betas=(0.0, 0.9))) for n in (g, d))
    batch = len(x_BCHW)

    def step() -> None:
        with torch.no_grad():
            fake = g(torch.randn(batch, latent), y_B)
        loss = F.relu(1 - d(x_BCHW, y_B)).mean() + F.relu(1 + d(fake, y_B)).mean()
        adam_d.zero_grad()
        backward(loss)
        adam_d.step()

        critic.requires_grad_(False)
        loss = -critic(g(torch.randn(batch, latent), y_B), y_B).mean()
        adam_g.zero_grad()
        backward(loss)
        adam_g.step()
        critic.requires_grad_(True)

    return step


def conditioned(g: nn.Module, d: nn.Module, x_BCHW: Tensor, condition: Tensor) -> Callable[[], None]:
    """A call that makes one step with the logistic loss and the distance to what was wanted."""
    adam_g, adam_d = (torch.optim.Adam(net.parameters(), 2e-4, betas=(0.5, 0.999)) for net in (g, d))
    bce = F.binary_cross_entropy_with_logits

    def step() -> None:
        fake = g(condition)
        on_fake, on_real = d(fake.detach(), condition), d(x_BCHW, condition)
        loss = 0.5 * (bce(on_real, torch.ones_like(on_real)) + bce(on_fake, torch.zeros_like(on_fake)))
        adam_d.zero_grad()
        loss.backward()
        adam_d.step()

        d.requires_grad_(False)
        on_fake = d(fake, condition)
        loss = bce(on_fake, torch.ones_like(on_fake)) + 100 * F.l1_loss(fake, x_BCHW)
        adam_g.zero_grad()
        loss.backward()
        adam_g.step()
        d.requires_grad_(True)

    return step
