"""Forward and backward of one micro-batch of a turn, for strategies that call whole networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.protocols import Network, Penalty, PenaltyContext, Turn
from paragan.core.types import Can, DiscriminatorOutput, GeneratorOutput, LossTerms, Outputs, Rows, Side, TurnInputs
from paragan.layers.all_reduce import ReduceGroup, gather_batch


def run_networks(turn: Turn, nets: Mapping[Side, Network], feed: TurnInputs) -> Outputs:
    """The networks of the chain in order.

    D's turn finds its fakes in the feed; G's makes them unless they are shared.
    """
    made = GeneratorOutput.of(feed.fakes[0] if feed.fakes is not None else nets[Side.G](*feed.fake_inputs))
    fake = (turn.augmented(made.images, "fake", feed), *feed.fake_inputs[1:])
    if not turn.needs_real:
        return Outputs(DiscriminatorOutput.of(nets[Side.D](*fake)), None, made.images, made.extra)
    x, *conditions = feed.real_inputs
    assert x is not None
    real = (turn.augmented(x, "real", feed), *conditions)
    on_real, on_fake = _discriminate_both(nets[Side.D], real, fake)
    return Outputs(on_fake, on_real, made.images, made.extra)


def _discriminate_both(
    d: Network, real: tuple[Any, ...], fake: tuple[Any, ...]
) -> tuple[DiscriminatorOutput, DiscriminatorOutput]:
    """One call on real and fake together, two where a norm would mix them."""
    if d.mixes:
        return DiscriminatorOutput.of(d(*real)), DiscriminatorOutput.of(d(*fake))
    both = [None if a is None or b is None else torch.cat([a, b.to(a.dtype)]) for a, b in zip(real, fake, strict=True)]
    on_real, on_fake = DiscriminatorOutput.of(d(*both)).split([len(real[0]), len(fake[0])])
    return on_real, on_fake


def _run_micro_batch(
    turn: Turn,
    nets: Mapping[Side, Network],
    feed: TurnInputs,
    gradient: Callable[[Tensor, Tensor], Tensor],
    across: ReduceGroup | None,
) -> tuple[Tensor, LossTerms]:
    """The loss that one part's backward starts from, divided by the rows of the global batch, and its terms."""
    if any(Can.DOUBLE_BACKWARD in p.needs for p in turn.penalties):
        feed = _differentiable(feed)
    outputs = replace(run_networks(turn, nets, feed), whole=partial(_global_batch, rows=feed.rows, across=across))
    terms = turn.objective(outputs, feed)
    part = PenaltyContext(nets[turn.side], feed, outputs, gradient, outputs.whole)
    loss_B = {**terms.loss_B, **{penalty.name: penalty(part) for penalty in turn.penalties}}
    summed = torch.stack([values.sum() for values in loss_B.values()]).sum() / feed.rows.total
    return summed, LossTerms(loss_B, terms.observations_B)


def _global_batch(x_B: Tensor, rows: Rows, across: ReduceGroup | None) -> Tensor:
    """The rows of all ranks. `ConfigError` where they cannot be gathered from other ranks or micro-batches."""
    if rows.stride > 1 or (across is None and rows.count < rows.total):
        raise ConfigError(
            f"loss: it, or a penalty, compares all {rows.total} samples of the batch, but only "
            f"{rows.count} are available here; set micro_batches to 1, and scheme to synchronous"
        )
    return x_B if across is None else gather_batch(x_B, rows, across)


def _differentiable(feed: TurnInputs) -> TurnInputs:
    """The same feed with images that gradients can be taken to; the batch itself is left as it is."""
    assert feed.real is not None
    fakes = None if feed.fakes is None else tuple(map(_leaf, feed.fakes))
    sample = {feed.arguments[0]: feed.real_sample.detach().requires_grad_()}
    return replace(feed, real=replace(feed.real, tensors={**feed.real.tensors, **sample}), fakes=fakes)


def _leaf(images: Tensor) -> Tensor:
    """Shared ones are leaves already, whose gradient goes on into G."""
    return images if images.requires_grad else images.detach().requires_grad_()


def forward_backward(
    turn: Turn,
    nets: Mapping[Side, Network],
    parts: int,
    gradient: Callable[[Tensor, Tensor], Tensor],
    factor: Tensor | float | None = None,
    around: Callable[[bool], AbstractContextManager[None]] = lambda last: nullcontext(),
    tied: Callable[[Sequence[Tensor]], Tensor | None] = lambda roots: None,
    *,
    across: ReduceGroup | None = None,
) -> LossTerms:
    """Run one backward per part. across: gathers the rows of all ranks for terms that mix samples.

    `factor` multiplies the loss; `around(last)` wraps each part, to reduce gradients on the last. `tied(roots)` may
    give a scalar that goes into the last backward as well.

    Shared fakes already have G's graph: the parts stop at the images, and one backward goes through G at the end, so
    that a reducer sees one forward and one backward of G however many parts there are. Penalties that need no image of
    the turn, on the weights alone or on images of their own, join that one.
    """
    shared = turn.feed.fakes if turn.side is Side.G else None
    late: tuple[Penalty, ...] = ()
    if shared is not None:
        late = tuple(penalty for penalty in turn.penalties if _needs_no_image(penalty))
        turn = turn.with_fakes(tuple(images.detach().requires_grad_() for images in shared), turn.feed.version)
        turn = replace(turn, penalties=tuple(penalty for penalty in turn.penalties if penalty not in late))
    done = []
    for number, feed in enumerate(turn.feed.parts(parts), start=1):
        last = number == parts and shared is None
        with around(last):
            loss, terms = _run_micro_batch(turn, nets, feed, gradient, across)
            loss = loss if factor is None else loss * factor
            _backward([loss], [None], tied if last else None)
        done.append(terms)
    if shared is not None:
        with around(True):
            roots, gradients = [*shared], [images.grad for images in turn.feed.fakes or ()]
            seen = partial(_global_batch, rows=turn.feed.rows, across=across)
            late_B = {p.name: p(PenaltyContext(nets[turn.side], turn.feed, _NO_OUTPUTS, gradient, seen)) for p in late}
            for values in late_B.values():
                loss = values.sum() / turn.feed.rows.total
                roots, gradients = [*roots, loss if factor is None else loss * factor], [*gradients, None]
            _backward(roots, gradients, tied)
        done[-1] = replace(done[-1], loss_B={**done[-1].loss_B, **late_B})
    return gather(done)


def _needs_no_image(penalty: Penalty) -> bool:
    return Can.WHOLE_WEIGHTS in penalty.needs or not penalty.uses_outputs


_NO_OUTPUTS = Outputs(DiscriminatorOutput(torch.empty(0)))


def _backward(
    roots: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    tied: Callable[[Sequence[Tensor]], Tensor | None] | None,
) -> None:
    extra = None if tied is None else tied(roots)
    if extra is not None:
        roots, gradients = [*roots, extra], [*gradients, None]
    torch.autograd.backward(roots, gradients)


def gather(parts: list[LossTerms]) -> LossTerms:
    """The detached terms of all micro-batches, concatenated; the caller sums them."""

    def joined(of: Callable[[LossTerms], Mapping[str, Tensor]], join: Callable[[Any], Tensor]) -> dict[str, Tensor]:
        return {
            name: join([of(terms)[name].detach() for terms in parts if name in of(terms)]) for name in of(parts[-1])
        }

    return LossTerms(
        joined(lambda t: t.loss_B, torch.cat),
        joined(lambda t: t.observations_B, torch.cat),
    )


def input_gradient(out_B: Tensor, x: Tensor, scale: Tensor | None = None) -> Tensor:
    """d sum(out_B) / dx with its graph. A loss scale guards the inner backward too, and is taken out of the result."""
    total = out_B.float().sum() if out_B.dtype in (torch.float16, torch.bfloat16) else out_B.sum()
    (grad,) = torch.autograd.grad(total if scale is None else total * scale, x, create_graph=True)
    if not grad.requires_grad:
        raise RuntimeError("the input gradient came back without a graph: this strategy is not differentiable twice")
    return grad if scale is None else grad / scale
