"""Spectral normalisation (Miyato et al. 2018, equations 5 to 8 and algorithm 1).

In a custom training loop:

    import torch
    from torch import nn
    from paragan.layers.update_once import begin_update
    from paragan.layers.spectral_norm import spectral_norm

    d = nn.Sequential(
        spectral_norm(nn.Conv2d(1, 32, 4, 2, 1)), nn.LeakyReLU(0.2), nn.Flatten(),
        spectral_norm(nn.Linear(32 * 14 * 14, 1)),
    )
    optimizer = torch.optim.Adam(d.parameters(), 2e-4, betas=(0.0, 0.9))
    for real, fake in pairs:
        begin_update(d)  # once per update: one power iteration, in the first forward
        loss = (1 - d(real)).relu().mean() + (1 + d(fake)).relu().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

Without `begin_update`, every forward in training mode runs a power iteration, as in `torch.nn.utils`.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from paragan.core import rng
from paragan.layers.precision import at_least_float32, autocast_off
from paragan.layers.update_once import UpdateOnce

WARM_UP = 15  # iterations before the first use: later ones only follow a weight that moves slowly


def spectral_norm(module: nn.Module, name: str = "weight") -> nn.Module:
    """Divide the tensor `name` of a module by its largest singular value; return the module.

    For Linear, Conv, Embedding and transposed convolutions: the tensor is read as a matrix of (outputs, the rest), a
    vector as one column. It stays trainable as `parametrizations.<name>.original`; u and v are in the state dict.
    """
    transposed = isinstance(module, nn.modules.conv._ConvTransposeNd)
    norm = SpectralNorm(getattr(module, name), dim=1 if transposed else 0)
    parametrize.register_parametrization(module, name, norm)
    return module


class SpectralNorm(UpdateOnce):
    """Parametrisation W / sigma with sigma = u^T W v; u and v are constants of the gradient.

    One power iteration per update (`UpdateOnce`), without gradient; one per forward in training mode if
    `begin_update` is never called. Computed in at least float32, also under autocast; the result has the dtype of W.
    The start vector is a fixed draw that leaves torch's global generator unchanged.
    """

    u: Tensor
    v: Tensor

    def __init__(self, weight: Tensor, dim: int = 0) -> None:
        super().__init__()
        self.dim = dim
        rows, columns = self._matrix(weight).shape
        dtype = at_least_float32(weight).dtype
        self.register_buffer("u", torch.empty(rows, dtype=dtype, device=weight.device))
        self.register_buffer("v", torch.empty(columns, dtype=dtype, device=weight.device))
        if not weight.is_meta:
            self.start(weight, rng.generator("spectral_norm", rows, columns))

    def forward(self, weight: Tensor) -> Tensor:
        with autocast_off(weight):
            wide = at_least_float32(weight)
            matrix = self._matrix(wide)
            if self.take_update():
                u, v = self._iterate(matrix.detach())
            else:
                # Copies for a graph: the next update may overwrite u and v before its backward.
                has_graph = matrix.requires_grad and torch.is_grad_enabled()
                u = self.u.to(matrix.dtype, copy=has_graph)
                v = self.v.to(matrix.dtype, copy=has_graph)
            return (wide / _sigma(u, torch.mv(matrix, v))).to(weight.dtype)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return what an assignment to the normalised tensor stores: the value, scale included."""
        return weight

    @torch.no_grad()
    def start(self, weight: Tensor, generator: torch.Generator) -> None:
        """Draw a new u from a normal distribution, then run `WARM_UP` iterations on this weight."""
        # drawn on the host: equal on every rank and device
        self.u.copy_(_normalized(torch.randn(len(self.u), generator=generator)))
        matrix = self._matrix(at_least_float32(weight))
        u = self.u
        for _ in range(WARM_UP):
            u, v = _power_iteration(matrix, u)
        self.u.copy_(u)
        self.v.copy_(v)

    def _iterate(self, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Run a power iteration; return u and v. matrix: detached."""
        iterate = _compiled_iteration if torch.compiler.is_compiling() else _power_iteration
        u, v = iterate(matrix, self.u)
        self.v.copy_(v)  # in place: vmap and EMA hold these tensors
        self.u.copy_(u)
        return u, v

    def _matrix(self, weight: Tensor) -> Tensor:
        return (weight.transpose(0, self.dim) if self.dim else weight).reshape(weight.shape[self.dim], -1)


def _sigma(u: Tensor, weighted_v: Tensor) -> Tensor:
    """Return u^H W v, a real number."""
    return torch.vdot(u, weighted_v).real if u.is_complex() else torch.dot(u, weighted_v)


def _power_iteration(matrix: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next u and v."""
    v = _normalized(torch.mv(matrix.mH, u.to(matrix.dtype)))
    return _normalized(torch.mv(matrix, v)), v


def _normalized(x: Tensor) -> Tensor:
    return x / torch.linalg.vector_norm(x, dim=0, keepdim=True).clamp_min(1e-12)  # F.normalize takes twice as long


# One operation for the compiler, which would else compute v again in the backward pass, from the u
# that has replaced the one of the forward pass.
_compiled_iteration = torch.library.custom_op("paragan::power_iteration", mutates_args=())(_power_iteration)


@_compiled_iteration.register_fake
def _power_iteration_shapes(matrix: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = matrix.shape
    return matrix.new_empty(rows), matrix.new_empty(columns)
