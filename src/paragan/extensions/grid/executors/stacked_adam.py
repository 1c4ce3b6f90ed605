"""Adam for stacked players: one program, with learning rates and skipped steps per player.

Weights, moments and averages of all cells are rows of matrices; the players hold views of them, so
that genomes are copied from and loaded into players as usual. Source: Kingma and Ba 2015, algorithm
1.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from paragan.core.layout import optimizer_weights
from paragan.extensions.grid.executors.stacked_tensors import stack_in_place, views_of_rows
from paragan.game import schedule
from paragan.game.player import Player

# arguments of Adam that are not honoured, with the values that mean nothing
_PLAIN_DEFAULTS = {"weight_decay": 0, "amsgrad": False, "maximize": False}
# fields of `Policy` that `StackedAdam` honours; with others, stacked turns are followed by steps player by player
_STACKED = {"kind", "lr", "arguments", "schedule", "max_norm", "updates_per_step"}
# fields that stacked turns honour at all; the executor refuses others by name
HONOURED = {*_STACKED, "groups"}


def can_stack(players: Sequence[Player]) -> bool:
    """Whether all players use the same plain Adam for all weights, up to their learning rates."""
    first = players[0]
    defaults = first.optimizer.defaults
    return (
        type(first.optimizer) is torch.optim.Adam
        and first.scaler is None
        and first.policy.non_defaults.keys() <= _STACKED
        and all(defaults.get(name) == value for name, value in _PLAIN_DEFAULTS.items())
        and all(weight.requires_grad for weight in first.net.parameters())
        and all(_step_settings(player) == _step_settings(first) for player in players)
    )


class StackedAdam:
    """Adam over the weights of all cells: rows of `flat_CP`, of which the players hold views.

    buffers_C: of the networks, which averages copy.
    """

    def __init__(self, players: Sequence[Player], flat_CP: Tensor, buffers_C: Sequence[Tensor] = ()) -> None:
        first = players[0]
        self.players = players
        self.flat_CP = flat_CP
        self._weights = list(first.net.parameters())
        self.beta1, self.beta2 = first.optimizer.defaults["betas"]
        self.eps = first.optimizer.defaults["eps"]
        self.max_norm = first.policy.max_norm
        self.schedule = first.policy.schedule
        self.m_CP = torch.zeros_like(flat_CP)
        self.v_CP = torch.zeros_like(flat_CP)
        self.average_CP = None if first.ema is None else torch.zeros_like(flat_CP)
        averages = [player.ema for player in players if player.ema is not None]
        average_buffers_C = stack_in_place([list(average.net.buffers()) for average in averages])
        # (of the networks, of the averages); none without averages
        self._buffer_pairs = list(zip(buffers_C, average_buffers_C, strict=False))
        # counts by cell and on the device: a cell that skips has made fewer, which the host does not know
        self.steps_C = torch.zeros(len(players), device=flat_CP.device)  # of Adam's state, which genomes exchange
        self.updates_C = torch.zeros(len(players), dtype=torch.int64, device=flat_CP.device)  # of the schedule
        self.lr_C = torch.zeros(len(players), dtype=flat_CP.dtype, device=flat_CP.device)

    @torch.no_grad()
    def take_over(self) -> None:
        """Read the optimiser state of the players, which may be clones, and make it views."""
        for cell, player in enumerate(self.players):
            self.updates_C[cell] = player.updates
            self.lr_C[cell] = player.policy.lr
            weights = optimizer_weights(player.optimizer).values()
            moments = self._views_of_cell(self.m_CP, cell)
            squares = self._views_of_cell(self.v_CP, cell)
            for weight, m, v in zip(weights, moments, squares, strict=True):
                state = player.optimizer.state[weight]
                self.steps_C[cell] = state.get("step", 0.0)  # equal for all weights
                for name, view in (("exp_avg", m), ("exp_avg_sq", v)):
                    # a view in place of the player's own tensor, so that genomes read what the stack steps
                    state[name] = view.copy_(state[name]) if name in state else view.zero_()
            if self.average_CP is not None and player.ema is not None:
                player.ema.move_to(self._views_of_cell(self.average_CP, cell))

    @torch.no_grad()
    def hand_back(self) -> None:
        """Write counters back, so that players can be read and stepped one by one."""
        for cell, player in enumerate(self.players):
            player.updates.copy_(self.updates_C[cell])
            for weight in optimizer_weights(player.optimizer).values():
                player.optimizer.state[weight]["step"] = self.steps_C[cell].clone()

    def count(self, images: int) -> Tensor | None:
        """Count an update over `images` images of each cell, before its `step`.

        Returns the weight by which the averages then move towards the weights, 0-dim; None without averages.
        """
        for player in self.players:  # what the host knows; skips are counted in `updates_C`
            player.version += 1
            player.due_turns += 1
            player.images += images
        first = self.players[0]
        if first.ema is None:
            return None
        weight = torch.tensor(first.ema.weight(first.images, images), dtype=self.flat_CP.dtype)
        return weight.to(self.flat_CP.device, non_blocking=True)

    @torch.no_grad()
    def step(self, gradient_CP: Tensor, average: Tensor | None) -> Tensor:
        """Step or skip each cell; returns gradient norms before clipping. average: from `count`."""
        norm_C = torch.linalg.vector_norm(gradient_CP, dim=1)
        ok_C = norm_C.isfinite()  # the others are skipped
        if self.max_norm is not None:
            gradient_CP = gradient_CP * (self.max_norm / (norm_C + 1e-6)).clamp(max=1.0)[:, None]
        lr_C = self.lr_C
        if schedule.varies(self.schedule):
            lr_C = lr_C * schedule.factor(self.schedule, self.updates_C).to(lr_C.dtype)
        # `where`, not a product with 0: NaN times 0 is NaN
        self._adam(torch.where(ok_C[:, None], gradient_CP, 0.0), ok_C, lr_C)
        self.updates_C += ok_C
        if average is not None:
            self._update_averages(average, ok_C)
        return norm_C

    def _adam(self, gradient_CP: Tensor, ok_C: Tensor, lr_C: Tensor) -> None:
        """Apply Adam; weights, moments and count of a skipped cell do not change."""
        ok_C1 = ok_C[:, None]
        self.steps_C.add_(ok_C)
        # a skipped cell moves by a factor of 0, not by a branch: a recorded turn has none
        self.m_CP.lerp_(gradient_CP, (1 - self.beta1) * ok_C1.to(gradient_CP.dtype))
        self.v_CP.lerp_(gradient_CP * gradient_CP, (1 - self.beta2) * ok_C1.to(gradient_CP.dtype))
        # at least 1, or a cell that has only skipped divides by 0; double, as Python's floats in torch's Adam
        steps_C = self.steps_C.clamp(min=1).double()
        rate_C = (ok_C * lr_C / (1 - self.beta1**steps_C)).to(self.flat_CP.dtype)
        scale_C = (1 - self.beta2**steps_C).sqrt().to(self.flat_CP.dtype)
        denominator_CP = self.v_CP.sqrt().div_(scale_C[:, None]).add_(self.eps)
        self.flat_CP.sub_(denominator_CP.reciprocal_().mul_(self.m_CP).mul_(rate_C[:, None]))

    def _update_averages(self, average: Tensor, ok_C: Tensor) -> None:
        """Average in the weights, and copy the buffers, of the cells that stepped."""
        assert self.average_CP is not None
        self.average_CP.lerp_(self.flat_CP, average * ok_C[:, None].to(self.flat_CP.dtype))
        for buffer_C, average_buffer_C in self._buffer_pairs:
            ok = ok_C.view(-1, *(1 for _ in buffer_C.shape[1:]))
            average_buffer_C.copy_(torch.where(ok, buffer_C, average_buffer_C))

    def _views_of_cell(self, matrix_CP: Tensor, cell: int) -> list[Tensor]:
        """Return views of a cell's row of a matrix, as the parameters are in memory."""
        return [view[0] for view in views_of_rows(matrix_CP[cell : cell + 1], self._weights)]


def _step_settings(player: Player) -> tuple[object, ...]:
    """Return everything that determines a step, except the learning rate."""
    arguments = {name: value for name, value in player.optimizer.defaults.items() if name != "lr"}
    average = None if player.ema is None else player.ema.options
    return type(player.optimizer), arguments, replace(player.policy, lr=0.0), average
