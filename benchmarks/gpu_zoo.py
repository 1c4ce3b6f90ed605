"""The zoo on an accelerator: images/s and share of the peak, for SNGAN 128, BigGAN 128, StyleGAN2 256 and R3GAN 32.

Each and a plain loop over the same networks in the same run, and what each lever adds. Floating point operations are
counted by torch over one step of the plain loop (convolutions and matrix products, forth and back). Others' figures are
those of their own logs and papers, on other accelerators; they are printed, not compared.

python -m benchmarks.gpu_zoo [seconds per row] [batch] [case ...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from benchmarks.record import write
from paragan.core import registry, rng
from paragan.core.dist import ALONE
from paragan.core.network_factory import NetworkFactory
from paragan.core.outputs import DiscriminatorOutput
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side, present_tensors
from paragan.game.gan import GAN
from paragan.game.network import Calling
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.hardware import executors
from paragan.layers.init import initialise
from paragan.layers.update_once import begin_update
from paragan.losses import hinge, nonsaturating, relativistic
from paragan.parallel import none
from paragan.penalties import r1, r2
from paragan.schemes import shared_fakes, synchronous

PEAK = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "V100": 125e12}  # dense, 16 bits, by the makers' data sheets


@dataclass(frozen=True)
class Case:
    """peers: what others tell, in words."""

    model: str
    side: int
    classes: int
    batch: int
    loss: Any
    options: dict[str, Any] = field(default_factory=dict)
    slopes: float = 0.0  # R1 and R2 in every step
    peers: str = ""

    @property
    def shape(self) -> tuple[int, int, int]:
        return (3, self.side, self.side)

    def net(self, side: Side) -> nn.Module:
        module = registry.load_module("models", self.model)
        kind = module.Generator if side is Side.G else module.Discriminator
        return kind(module.Options(conditional=self.classes > 0, **self.options), self.shape, self.classes)


CASES = {
    "SNGAN 128": Case("sngan", 128, 1000, 64, hinge, peers="800 images/s on 8 V100 (StudioGAN's log)"),
    "BigGAN 128": Case("biggan", 128, 1000, 64, hinge, peers="348 images/s on 8 V100 (StudioGAN's log, batch 2048)"),
    "StyleGAN2 256": Case(
        "stylegan2", 256, 0, 32, nonsaturating, {"base": 16384}, peers="80 images/s on one A100 (its authors' table)"
    ),
    "R3GAN 32": Case("r3gan", 32, 10, 256, relativistic, slopes=0.05, peers="none published"),
}
LAST = Calling(torch.bfloat16, channels_last=True)
LEVERS: dict[str, tuple[Calling, Any, str]] = {  # call, scheme, executor
    "float32": (Calling(), synchronous, "eager"),
    "bf16": (Calling(torch.bfloat16), synchronous, "eager"),
    "bf16 channels-last": (LAST, synchronous, "eager"),
    "bf16 channels-last shared fakes": (LAST, shared_fakes.Scheme(), "eager"),
    "bf16 channels-last shared fakes, compiled": (LAST, shared_fakes.Scheme(), "compile"),
    "bf16 channels-last shared fakes, CUDA graphs": (LAST, shared_fakes.Scheme(), "graphs"),
}
TRACED = "bf16 channels-last shared fakes"


def ours(case: Case, calling: Calling, scheme: Any, device: torch.device, batch: int) -> Callable[[], object]:
    """A call that makes one step of the library's."""
    policy = Policy(kind=torch.optim.Adam, lr=2e-4, arguments={"betas": (0.0, 0.99)})

    def construct(side: Side) -> nn.Module:
        net = case.net(side)
        return net.to(memory_format=torch.channels_last) if calling.channels_last else net

    def seat(side: Side) -> Player:
        make = NetworkFactory(partial(construct, side), partial(initialise, seed=0, stream=side.value), device)
        return Player(
            side=side, net=none.Strategy().prepare(make, replace(ALONE, device=device)), policy=policy, calling=calling
        )

    seats = {side: seat(side) for side in Side}
    prior = Prior(seed=0, latent=seats[Side.G].net.latent, num_classes=case.classes, device=device)
    slopes = [module.Penalty(module.Options(weight=case.slopes)) for module in (r1, r2)] if case.slopes else []
    loss = Loss(case.loss.d_loss, case.loss.g_loss, case.loss is relativistic)
    gan = GAN(g=seats[Side.G], d=seats[Side.D], loss=loss, prior=prior, d_penalties=tuple(slopes))
    x, y = images(case, device, batch)
    batches = (
        Batch(Rows(step=step, first=0, count=batch, total=batch), present_tensors(image=x, label=y)) for step in count()
    )
    return lambda: scheme.step(gan, batches)


def plain(case: Case, device: torch.device, batch: int) -> Callable[[], None]:
    """The same networks in a loop of one's own, float32, two calls of D."""
    nets = {}
    for side in Side:
        nets[side] = case.net(side).to(device)
        initialise(nets[side], 0, side.value)
    g, d = nets[Side.G], nets[Side.D]
    adam_g, adam_d = (torch.optim.Adam(net.parameters(), 2e-4, betas=(0.0, 0.99)) for net in (g, d))
    x, y = images(case, device, batch)

    def judged(images: Tensor) -> Tensor:
        return DiscriminatorOutput.of(d(images, y)).logits_B

    def slope(logits_B: Tensor, images: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(logits_B.sum(), images, create_graph=True)
        return case.slopes / 2 * gradient.square().sum() / batch

    def step() -> None:
        begin_update(d)
        with torch.no_grad():
            fake = g(torch.randn(batch, g.latent, device=device), y)
        real, fake = (images.detach().requires_grad_(case.slopes > 0) for images in (x, fake))
        on_real, on_fake = judged(real), judged(fake)
        loss = case.loss.d_loss(on_real, on_fake).mean()
        if case.slopes:
            loss = loss + slope(on_real, real) + slope(on_fake, fake)
        adam_d.zero_grad()
        loss.backward()
        adam_d.step()
        begin_update(g)
        d.requires_grad_(False)
        on_real = judged(x) if case.loss is relativistic else None
        loss = case.loss.g_loss(judged(g(torch.randn(batch, g.latent, device=device), y)), on_real).mean()
        adam_g.zero_grad()
        loss.backward()
        adam_g.step()
        d.requires_grad_(True)

    return step


def images(case: Case, device: torch.device, batch: int) -> tuple[Tensor, Tensor | None]:
    rows = Rows(step=0, first=0, count=batch, total=batch)
    x = rng.uniform(1, "x", rows, case.shape) * 2 - 1
    return x.to(device), rng.integers(1, "y", rows, case.classes).to(device) if case.classes else None


class Counted(TorchDispatchMode):
    """Floating point operations of all that is called inside; torch's own counter stops at a gradient of a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func._overloadpacket in flop_registry:
            self.flops += flop_registry[func._overloadpacket](*args, **(kwargs or {}), out_val=found)
        return found


def rate(step: Callable[[], object], batch: int, seconds: float) -> float:
    """Images/s over about so long, after a warm-up."""
    for _ in range(3 if seconds else 1):
        step()
    _wait()
    start, done = time.perf_counter(), 0
    while not done or time.perf_counter() - start < seconds:
        step()
        done += 1
        if done % 5 == 0:
            _wait()
    _wait()
    return batch * done / (time.perf_counter() - start)


def time_shares(step: Callable[[], object], most: int = 15) -> dict[str, float]:
    """Shares of a step's time by operation, the longest first: what is left to make faster."""
    for _ in range(2):
        step()
    with torch.profiler.profile() as profile:
        step()
        _wait()
    events = profile.key_averages()
    times = {event.key: event.self_device_time_total for event in events}
    if not any(times.values()):  # no accelerator
        times = {event.key: event.self_cpu_time_total for event in events}
    whole = sum(times.values())
    longest = sorted(times, key=lambda name: -times[name])[:most]
    return {name: round(times[name] / whole, 4) for name in longest}


def _wait() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def row(case: Case, seconds: float, batch: int, device: torch.device) -> dict[str, Any]:
    """Images/s of all variants, and the share of the peak that the operations of the plain loop would need."""
    step = plain(case, device, batch)
    step()
    with Counted() as counted:
        step()
    flops = counted.flops / batch
    rates = {"plain loop, float32": rate(step, batch, seconds)}
    for name, (calling, scheme, executor) in LEVERS.items():
        try:
            compiled = replace(calling, compiler=executors.call_compiler(executor, device))
            rates[name] = rate(ours(case, compiled, scheme, device, batch), batch, seconds)
        except Exception as error:
            rates[name] = f"not run: {type(error).__name__}: {str(error)[:200]}"
    peak = next(
        (most for name, most in PEAK.items() if device.type != "cpu" and name in torch.cuda.get_device_name()), 0
    )
    shares = {name: flops * value / peak for name, value in rates.items() if peak and isinstance(value, float)}
    return {
        "batch": batch,
        "flop_per_image": flops,
        "images_per_s": rates,
        "share_of_peak": shares,
        "time_of_operations": time_shares(ours(case, *LEVERS[TRACED][:2], device, batch)),
        "peers": case.peers,
    }


def main(seconds: float = 10.0, batch: int = 0, names: Sequence[str] = ()) -> None:
    if not torch.cuda.is_available():
        print("not run: no accelerator")
        return
    device, found = torch.device("cuda"), {}
    for name in names or CASES:
        case = CASES[name]
        found[name] = row(case, seconds, batch or case.batch, device)
        for variant, value in found[name]["images_per_s"].items():
            share = found[name]["share_of_peak"].get(variant)
            text = (
                value
                if isinstance(value, str)
                else f"{value:.0f} images/s" + (f", {share:.1%} of peak" if share else "")
            )
            print(f"{name}: {variant}: {text}", flush=True)
        print(f"{name}: time of operations: {found[name]['time_of_operations']}")
        print(f"{name}: others: {case.peers}")
    write("gpu-zoo", found, on=torch.cuda.get_device_name())


if __name__ == "__main__":
    main(
        *(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0, int(sys.argv[2]) if len(sys.argv) > 2 else 0), sys.argv[3:]
    )
