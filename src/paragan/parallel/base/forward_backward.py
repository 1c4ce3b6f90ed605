"""Forward and backward passes of a turn, for strategies that call whole networks.

Each micro-batch has a forward and a backward pass. With shared fakes or a balancer, G runs before them, their backward
passes end at its output, and one goes through G at the end.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from paragan.core.balancer import Balancer
from paragan.core.capabilities import Capability
from paragan.core.errors import ConfigError
from paragan.core.fakes import discriminate_both, generate
from paragan.core.outputs import NOT_RUN, DiscriminatorOutput, GeneratorOutput, Outputs, sum_of
from paragan.core.printable import counted
from paragan.core.protocols import Network, Penalty, PenaltyContext, Turn
from paragan.core.row_draws import rows_of_calls
from paragan.core.types import LossTerms, Rows, Side, TurnInputs
from paragan.layers.all_reduce import ReduceGroup, gather_batch
from paragan.parallel.base.backward_pass import backward
from paragan.parallel.base.reduction import NO_REDUCTION, Reduction


def _global_batch(x_B: Tensor, rows: Rows, across: ReduceGroup | None) -> Tensor:
    """Gather the rows of all ranks; `ConfigError` if some are not in this micro-batch."""
    if rows.stride > 1 or (across is None and rows.count < rows.total):
        raise ConfigError(
            f"loss: it, or a penalty, compares all {rows.total} samples of the batch, but only "
            f"{rows.count} are available here; set micro_batches to 1, and scheme to synchronous"
        )
    return x_B if across is None else gather_batch(x_B, rows, across)


def _differentiable(feed: TurnInputs) -> TurnInputs:
    """Return a copy of the feed whose images require gradients."""
    assert feed.real is not None
    fakes = None if feed.fakes is None else tuple(map(_leaf, feed.fakes))
    sample = {feed.sample_name: feed.real_sample.detach().requires_grad_()}
    real = replace(feed.real, tensors={**feed.real.tensors, **sample})
    return replace(feed, real=real, fakes=fakes)


def _leaf(images: Tensor) -> Tensor:
    """Return images that require a gradient; that of shared ones continues into G."""
    return images if images.requires_grad else images.detach().requires_grad_()


def forward_backward(
    turn: Turn,
    nets: Mapping[Side, Network],
    parts: int,
    input_gradient: Callable[[Tensor, Tensor], Tensor],
    scale: Tensor | None = None,
    reduction: Reduction = NO_REDUCTION,
) -> LossTerms:
    """Run one backward per micro-batch and return the detached terms of all micro-batches.

    input_gradient: as of `PenaltyContext`. scale: of the loss.
    """
    run = _TurnRun(nets, input_gradient, scale, reduction)
    if turn.balancer is not None:
        return concatenate_terms(run.balanced(turn, turn.balancer, parts))
    if turn.side is Side.G and turn.feed.fakes is not None:
        return concatenate_terms(run.from_shared_fakes(turn, turn.feed.fakes, parts))
    return concatenate_terms(run.micro_batches(turn, parts))


@dataclass(frozen=True)
class _TurnRun:
    """The networks of a turn with what its backward passes need."""

    nets: Mapping[Side, Network]
    input_gradient: Callable[[Tensor, Tensor], Tensor]
    scale: Tensor | None
    reduction: Reduction

    def micro_batches(self, turn: Turn, parts: int, reduces: bool = True) -> list[LossTerms]:
        """Run forward and backward of each; reduces: the last one reduces gradients over ranks."""
        terms = []
        for number, feed in enumerate(turn.feed.parts(parts), start=1):
            # Only the last backward reduces: the gradients of the others are summed on this rank first.
            terms.append(self._micro_batch(turn, feed, reduces=reduces and number == parts))
        return terms

    def _micro_batch(self, turn: Turn, feed: TurnInputs, reduces: bool) -> LossTerms:
        with self.reduction.sync_context(reduces):
            loss, terms = self._loss(turn, feed)
            self._backward([self._scaled(loss)], [None], tuple(terms.loss_B) if reduces else ())
        return concatenate_terms([terms])  # without their graphs

    def from_shared_fakes(self, turn: Turn, fakes: tuple[Tensor, ...], parts: int) -> list[LossTerms]:
        """Run a turn of G whose images have G's graph already.

        The micro-batches stop at the images, and one backward goes through G at the end, so that a
        reducer sees one forward and one backward of G for any number of micro-batches. Penalties
        that need no image of the turn join that one.
        """
        # The leaves collect the gradients at the images of all micro-batches; G's graph is untouched.
        leaves = tuple(images.detach().requires_grad_() for images in fakes)
        terms = self.micro_batches(_without_weight_terms(turn.with_fakes(leaves)), parts, reduces=False)
        terms[-1] = self._through_generator(turn, fakes, [leaf.grad for leaf in leaves], terms[-1])
        return terms

    def balanced(self, turn: Turn, balancer: Balancer, parts: int) -> list[LossTerms]:
        """Run a turn of G whose terms a balancer weighs by their gradients at G's output.

        G runs first, for all micro-batches; each term has a backward pass down to its output, and
        one with their weighted sum goes through G at the end.
        """
        # most games have no balancer
        from paragan.parallel.base.balanced import PartGradients, check_balanced_turn, recorded_layer, term_gradients

        fakes = turn.feed.fakes
        check_balanced_turn(turn, balancer, self.reduction.across is None)
        with recorded_layer(self.nets[Side.G].module, balancer) as layer:
            if fakes is None:
                generated = [generate(self.nets[Side.G], feed) for feed in turn.feed.parts(parts)]
            else:
                generated = [GeneratorOutput(images) for images in fakes]
        gradients = [PartGradients.of(output) for output in generated]
        on_leaves = _without_weight_terms(turn.with_fakes(tuple(part.leaf.images for part in gradients)))
        terms = []
        # No reduction yet: factors need the gradients of all terms, and only their sum goes into G.
        with self.reduction.sync_context(False):
            for part, feed in zip(gradients, on_leaves.feed.parts(parts), strict=True):
                of_part = self._terms(on_leaves, feed, part.leaf)
                terms.append(part.add(of_part, feed.rows.total, self.scale))
            factors = balancer.factors(term_gradients(gradients, terms[-1].weights, self._sum_over_ranks, layer, turn))
        pairs = [pair for part in gradients for pair in part.weighted(factors)]
        roots = [root for root, _ in pairs]
        last = self._through_generator(turn, roots, [self._scaled(gradient) for _, gradient in pairs], terms[-1])
        recorded = {f"balancer/{name}": factor.expand(turn.feed.rows.count) for name, factor in factors.items()}
        terms[-1] = replace(last, observations_B={**last.observations_B, **recorded})
        return terms

    def _sum_over_ranks(self, values: Tensor) -> Tensor:
        across = self.reduction.across
        return values if across is None else across.all_reduce_(values)

    def _through_generator(
        self, turn: Turn, roots: Sequence[Tensor], gradients: Sequence[Tensor | None], last: LossTerms
    ) -> LossTerms:
        """Run one backward through G from these gradients and penalties without images; return `last` with these."""
        with self.reduction.sync_context(True), rows_of_calls(turn.feed.rows, "late"):
            context = self._context(turn, turn.feed, replace(_NO_OUTPUTS, whole=self._whole(turn.feed)))
            weight_terms_B = {penalty.name: penalty(context) for penalty in turn.penalties if _needs_no_image(penalty)}
            _check_rows(weight_terms_B, turn.feed.rows.count)
            total = turn.feed.rows.total
            # a value without a graph, of a term that is constant now, has nothing to pass backward
            losses = [self._scaled(values.sum() / total) for values in weight_terms_B.values() if values.requires_grad]
            loss_B = {**last.loss_B, **weight_terms_B}
            self._backward([*roots, *losses], [*gradients, *(None for _ in losses)], tuple(loss_B))
        return replace(last, loss_B=loss_B)

    def _loss(self, turn: Turn, feed: TurnInputs) -> tuple[Tensor, LossTerms]:
        """Return the loss of one micro-batch, divided by all rows of the batch, and its terms."""
        terms = self._terms(turn, feed)
        sums = [values.sum() for values in terms.loss_B.values()]
        if not sums:  # all terms need no image and follow later: a zero, so that there is a pass that ends at the fakes
            assert feed.fakes is not None
            sums = [feed.fakes[0].sum() * 0]
        return sum_of(sums) / feed.rows.total, terms

    def _terms(self, turn: Turn, feed: TurnInputs, generated: GeneratorOutput | None = None) -> LossTerms:
        """Return the terms of one micro-batch. generated: G's output, if it has run."""
        if any(Capability.DOUBLE_BACKWARD in penalty.needs for penalty in turn.penalties):
            feed = _differentiable(feed)
        with rows_of_calls(feed.rows):
            generated = self._generated(turn, feed) if generated is None else generated
            context = self._context(turn, feed, self._outputs(turn, feed, generated))
            terms = turn.objective(context.outputs, feed)
            loss_B = {**terms.loss_B, **{penalty.name: penalty(context) for penalty in turn.penalties}}
        _check_rows(loss_B, feed.rows.count)
        return LossTerms(loss_B, terms.observations_B, terms.weights)

    def _generated(self, turn: Turn, feed: TurnInputs) -> GeneratorOutput:
        """Return the fakes of the feed, or call G; nothing for a chain without networks."""
        if feed.fakes is not None:
            return GeneratorOutput(feed.fakes[0])
        return generate(self.nets[Side.G], feed) if turn.chain else _NOTHING

    def _outputs(self, turn: Turn, feed: TurnInputs, generated: GeneratorOutput) -> Outputs:
        """Call D, if the chain has it, on what G generated, and on real samples if the turn needs them."""
        whole = self._whole(feed)
        if Side.D not in turn.chain:
            return Outputs(fake=NOT_RUN, images=generated.images, extra=generated.extra, whole=whole)
        d = self.nets[Side.D]
        fake = (turn.augmented(generated.images, "fake", feed), *feed.fake_conditions)
        on_real = None
        if turn.needs_real:
            x, *conditions = feed.real_inputs
            assert x is not None
            real = (turn.augmented(x, "real", feed), *conditions)
            on_real, on_fake = discriminate_both(d, real, fake)
        else:
            on_fake = DiscriminatorOutput.of(d(*fake))
        return Outputs(fake=on_fake, real=on_real, images=generated.images, extra=generated.extra, whole=whole)

    def _whole(self, feed: TurnInputs) -> Callable[[Tensor], Tensor]:
        return partial(_global_batch, rows=feed.rows, across=self.reduction.across)

    def _context(self, turn: Turn, feed: TurnInputs, outputs: Outputs) -> PenaltyContext:
        return PenaltyContext(
            network=self.nets[turn.side],
            feed=feed,
            outputs=outputs,
            input_gradient=self.input_gradient,
            whole=outputs.whole,
            augmented=partial(turn.augmented, feed=feed),
            players={side.value: net for side, net in self.nets.items() if side is not turn.side},
        )

    def _scaled(self, loss: Tensor) -> Tensor:
        # A reducer takes the mean over ranks, and the loss is this rank's share of a sum over the batch.
        loss = loss if self.reduction.ranks == 1 else loss * self.reduction.ranks
        return loss if self.scale is None else loss * self.scale

    def _backward(self, roots: Sequence[Tensor], gradients: Sequence[Tensor | None], terms: Sequence[str] = ()) -> None:
        """Run a backward pass. terms: names of those of the turn if this is the last pass."""
        if terms and (zero := self.reduction.zero_for_unused(roots, terms)) is not None:
            roots = [*roots, zero]
            gradients = [*gradients, None]
        backward(roots, gradients, self.reduction.ranks)


def _check_rows(loss_B: Mapping[str, Tensor], count: int) -> None:
    """Raise `ConfigError` for a loss that is not one value for each of these samples."""
    for name, values in loss_B.items():
        shape = tuple(values.shape)
        if shape != (count,):
            what = f"has shape {shape} for {counted(count, 'sample')}" if shape else "is a mean over the batch"
            raise ConfigError(f"loss {name!r} {what}; return one value per sample: keep the batch axis")


def _without_weight_terms(turn: Turn) -> Turn:
    """Return a copy of a turn without the penalties that need no image of it."""
    return replace(turn, penalties=tuple(term for term in turn.penalties if not _needs_no_image(term)))


def _needs_no_image(penalty: Penalty) -> bool:
    return Capability.WHOLE_WEIGHTS in penalty.needs or not penalty.uses_outputs


_NOTHING = GeneratorOutput(torch.empty(0))  # of a turn without networks
_NO_OUTPUTS = Outputs(fake=DiscriminatorOutput(torch.empty(0)))


def concatenate_terms(parts: list[LossTerms]) -> LossTerms:
    """Return the detached terms of all micro-batches, concatenated; the caller sums them."""
    loss_B = _concatenate([terms.loss_B for terms in parts])
    return LossTerms(loss_B, _concatenate([terms.observations_B for terms in parts]))


def _concatenate(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    if len(parts) == 1:
        return {name: values.detach() for name, values in parts[0].items()}
    # the last one has all terms: those without images join there
    return {name: torch.cat([part[name].detach() for part in parts if name in part]) for name in parts[-1]}
