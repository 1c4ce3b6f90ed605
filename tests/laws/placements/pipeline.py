"""Both networks cut in two stages on two ranks, 1F1B; G's turn pipes G and then the frozen D as four virtual stages.

Penalties on D's input follow the schedule in a pass of their own: the forward, the inner gradient and the outer
backward each cross the cut once, by two autograd functions whose backward is the other direction."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

from paragan.core.outputs import DiscriminatorOutput, Outputs
from paragan.core.protocols import PenaltyContext
from paragan.core.types import Can, LossTerms, Side
from paragan.parallel import _forward_backward, none


class Staged(nn.Module):
    """This rank's blocks of a network, under their plain names. Its forward is the whole network, without gradients."""

    def __init__(self, whole: nn.Module, rank: int, world: int, probe: tuple) -> None:
        super().__init__()
        self.rank, self.world = rank, world
        cut = len(whole.blocks) // world
        mine = range(rank * cut, len(whole.blocks) if rank == world - 1 else (rank + 1) * cut)
        self.shapes, h = [], probe[0]
        for number, block in enumerate(whole.blocks):
            if number % cut == 0 and number // cut < world:
                self.shapes.append(tuple(h.shape[1:]))
            h = block(h, probe[1])
        h = h[0] if isinstance(h, tuple) else h
        self.shapes.append(tuple(h.shape[1:]))
        self.dtype = h.dtype
        self.blocks = nn.ModuleDict({str(i): whole.blocks[i] for i in mine})
        self.template = {name: value.shape for name, value in whole.state_dict().items()}

    def stage(self, h, y=None):
        for block in self.blocks.values():
            h = block(h, y)
        return (h[0] if isinstance(h, tuple) else h).contiguous()

    def forward(self, x, y=None):
        assert not torch.is_grad_enabled()
        h = x if self.rank == 0 else torch.empty(len(x), *self.shapes[self.rank], dtype=self.dtype)
        if self.rank > 0:
            dist.recv(h, self.rank - 1)
        h = self.stage(h, y)
        if self.rank < self.world - 1:
            dist.send(h, self.rank + 1)
            h = torch.empty(len(x), *self.shapes[-1], dtype=self.dtype)
        dist.broadcast(h, self.world - 1)
        return h


class Cut(nn.Module):
    """What a pipeline stage calls."""

    def __init__(self, staged: Staged) -> None:
        super().__init__()
        self.staged = staged

    def forward(self, h, y=None):
        return self.staged.stage(h, y)


class Send(torch.autograd.Function):
    """To the peer; the gradient comes back from there. Returns a token that stands for the tensor on this rank."""

    @staticmethod
    def forward(ctx, tensor, peer):
        ctx.peer, ctx.like = peer, torch.empty_like(tensor, memory_format=torch.contiguous_format)
        dist.send(tensor.contiguous(), peer)
        return tensor.new_zeros(())

    @staticmethod
    def backward(ctx, _):
        dist.recv(ctx.like, ctx.peer)
        return ctx.like, None


class Recv(torch.autograd.Function):
    """From the peer; the gradient goes back there. `anchor` makes the result part of this rank's graph."""

    @staticmethod
    def forward(ctx, anchor, shape, peer):
        ctx.peer, tensor = peer, anchor.new_empty(shape)
        dist.recv(tensor, peer)
        return tensor

    @staticmethod
    def backward(ctx, grad):
        dist.send(grad.contiguous(), ctx.peer)
        return None, None, None


class Strategy(none.Strategy):
    """Per-sample terms only, and no norm that mixes samples: every stage sees one part at a time."""

    can = frozenset({Can.DOUBLE_BACKWARD, Can.PARTS})

    def prepare(self, make, mesh):
        whole, probe = make(), mesh
        with torch.no_grad():
            return Staged(whole, dist.get_rank(), dist.get_world_size(), probe)

    def prepare_average(self, make, mesh):
        return self.prepare(make, mesh)

    def optimizer(self, policy, net):
        return policy.optimizer(net.named_parameters())

    def forward_backward(self, turn, nets, parts, scale=None):
        feeds, done = turn.feed.parts(parts), []

        def loss_of(output, number):
            feed = feeds[int(number[0])]
            outputs = self._outputs(turn, DiscriminatorOutput.of(output), feed)
            terms = turn.objective(outputs, feed)
            done.append(terms)
            return sum(values.sum() for values in terms.loss_B.values()) / feed.rows.total

        x, y, chunks = self._inputs(turn, feeds)
        numbers = torch.repeat_interleave(torch.arange(parts), len(x) // parts)
        schedule = self._schedule(turn, nets, chunks, loss_of, parts)
        last = dist.get_rank() == dist.get_world_size() - 1
        schedule.step(
            *((x,) if dist.get_rank() == 0 else ()), **({"target": numbers, "losses": []} if last else {}), y=y
        )
        terms = _forward_backward.gather(done) if last else self._nothing(turn, feeds[0])
        return self._penalise(turn, nets, feeds, terms) if turn.penalties else terms

    def _penalise(self, turn, nets, feeds, terms):
        """The penalties due, over the real rows.

        Both ranks hold the same terms by name, the values live on the first.
        """
        values = {penalty.name: [] for penalty in turn.penalties}
        for feed in feeds:
            x = feed.real.image.requires_grad_()
            out, h = self._across(nets[turn.side].module, x, feed.real.label)
            part = PenaltyContext(
                nets[turn.side],
                feed,
                Outputs(fake=DiscriminatorOutput(out), real=DiscriminatorOutput(out)),
                lambda o, i, h=h: self._back(o, i, h),
            )
            losses = {penalty.name: penalty(part) for penalty in turn.penalties}
            (sum(loss.sum() for loss in losses.values()) / feed.rows.total + 0.0 * out.sum()).backward()
            for name, loss in losses.items():
                values[name].append(loss.detach())
        return LossTerms({**terms.loss_B, **{n: torch.cat(v) for n, v in values.items()}}, terms.observations_B)

    def _across(self, net, x, y):
        """The logits on the last rank, on the first a stand-in tied to the graph; and what crossed the cut."""
        if dist.get_rank() == 0:
            h = net.stage(x, y)
            return Send.apply(h, 1) + x.new_zeros(len(x)), h
        h = Recv.apply(x, (len(x), *net.shapes[1]), 0)
        return net.stage(h, y), h

    def _back(self, out_B, x, h):
        """d out / dx on the first rank, zeros tied to the graph on the last."""
        if dist.get_rank() == 0:
            return torch.autograd.grad(h, x, Recv.apply(x, h.shape, 1), create_graph=True)[0]
        (grad,) = torch.autograd.grad(out_B.sum(), h, create_graph=True)
        return torch.zeros_like(x) + Send.apply(grad, 0)

    def _inputs(self, turn, feeds):
        if turn.side is Side.G:
            return turn.feed.latent, turn.feed.label, [f.rows.count for f in feeds]
        x = torch.cat([t for f in feeds for t in (f.real.image, f.fakes[0])])
        y = torch.cat([t for f in feeds for t in (f.real.label, f.label)])
        return x, y, [2 * f.rows.count for f in feeds]

    def _outputs(self, turn, verdict, feed):
        if turn.side is Side.G:
            return Outputs(fake=verdict)
        real, fake = verdict.split([feed.rows.count] * 2)
        return Outputs(fake=fake, real=real)

    def _schedule(self, turn, nets, chunks, loss_of, parts):
        rank, world, device = dist.get_rank(), dist.get_world_size(), torch.device("cpu")
        stages = []
        for place, side in enumerate(turn.chain):
            net = nets[side].module
            shape = lambda i, net=net, first=place == 0: torch.empty(  # noqa: E731
                chunks[0], *net.shapes[i], dtype=net.dtype, requires_grad=i > 0 or not first
            )
            stages.append(
                PipelineStage(Cut(net), place * world + rank, len(turn.chain) * world, device,
                              input_args=(shape(rank),), output_args=(shape(rank + 1),))
            )  # fmt: skip
        if len(stages) == 1:
            return Schedule1F1B(stages[0], parts, loss_fn=loss_of, scale_grads=False)
        return ScheduleInterleaved1F1B(stages, parts, loss_fn=loss_of, scale_grads=False)

    def _nothing(self, turn, feed):
        """Terms of the same names that add nothing to the totals."""
        zero = DiscriminatorOutput(torch.zeros(1, dtype=torch.float64))
        terms = turn.objective(Outputs(fake=zero, real=zero), feed)
        blank = lambda of: {name: torch.zeros(1) for name in of}  # noqa: E731
        return LossTerms(blank(terms.loss_B), blank(terms.observations_B))

    def input_gradient(self, net, out_B, x, scale=None):
        raise AssertionError("across a cut it needs what crossed it: `_back`")

    def finish(self, net, max_norm, scale=None):
        norm = torch.nn.utils.get_total_norm([p.grad for p in net.parameters() if p.grad is not None]) ** 2
        dist.all_reduce(norm)
        if max_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(net.parameters(), max_norm, norm.sqrt())
        return norm.sqrt()

    def rank_weight(self, net):
        return 1 / dist.get_world_size()

    def weights(self, net):
        mine, whole = net.state_dict(), {}
        for name, shape in net.template.items():
            whole[name] = mine[name].clone() if name in mine else torch.zeros(shape, dtype=net.dtype)
            dist.all_reduce(whole[name])
        return whole

    def load(self, net, weights):
        raise AssertionError("the proof does not load")
