"""Strategies on an accelerator, by ranks that share one: the laws of one rank, offload, low formats, two ranks on it.

Not `tests/distributed`: there every process is on the CPU. What needs no device is also run here on the CPU.
"""

import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial

import pytest
import torch
import torch.distributed as dist

from paragan import build
from paragan.config import read_recipe
from paragan.core import registry
from paragan.core.dist import ALONE
from paragan.core.types import Side
from paragan.distributed.launch.join import destroy_groups, join
from paragan.game.ema import Ema
from paragan.game.network import Calling
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.parallel import MemoryOptions
from paragan.parallel.base.master_weights import MasterWeights
from paragan.schemes import synchronous
from tests.laws import matrix_gan
from tests.laws.matrix_gan import Switches
from tests.laws.small_gan import distance
from tests.processes import ROOT, environment
from tests.tiny_run import train_and_read

PLAIN = MemoryOptions()
STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "local_sgd")
ON = Switches(bn=True, micro_batches=2)
needs_one = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_one])]
SMALL = (
    "data.size=16",
    "model.width=8",
    "train.batch=32",
    "train.kimg=0.64",
    "evaluation.features=null",
    "penalties=[]",
)
QUIET = ("every.sample_kimg=0", "every.score_kimg=0", "every.log_steps=5")


@contextmanager
def world_on(device):
    """A group of one on this device: nccl on CUDA, gloo on the CPU."""
    world = join(None, torch.device(device), 60.0, alone_group=True)
    try:
        assert dist.get_backend(world.group) == dist.get_default_backend_for_device(device)
        yield world
    finally:
        destroy_groups(world)


def seat(side, name, world, memory=PLAIN, dtype=torch.float64):
    module = registry.load_module("parallel", name)
    strategy = module.Strategy(module.Options() if hasattr(module, "Options") else None, memory)
    plain = matrix_gan.make(side, ON)
    make = replace(plain, construct=lambda: plain.construct().to(dtype), device=world.device)
    net = strategy.prepare(make, world)
    average = Ema(strategy.prepare_average(make, world), EmaOptions(half_life_kimg=0.02)) if side is Side.G else None
    policy = Policy(
        kind=torch.optim.Adam,
        lr=1e-2,
        arguments={"betas": (0.0, 0.9)},
        max_norm=0.5,
        micro_batches=ON.micro_batches,
        groups=matrix_gan.GROUPS,
    )
    return Player(
        side=side, net=net, strategy=strategy, policy=policy, calling=Calling(memory.weight_dtype), ema=average
    )


def played(name, world, steps=3, share=(0, matrix_gan.BATCH), **how):
    """The game after some steps on these rows, R1 among them."""
    dtype = how.get("dtype", torch.float64)
    gan = matrix_gan.game(ON, *(seat(side, name, world, **how) for side in Side))
    gan.prior = replace(gan.prior, device=world.device, dtype=dtype)
    stream = ((b, b.image.to(world.device, dtype), b.label.to(world.device)) for b in matrix_gan.stream(ON, *share))
    batches = (replace(b, tensors={"image": x, "label": y}) for b, x, y in stream)
    for _ in range(steps):
        synchronous.step(gan, batches)
    return gan


def held(gan):
    """All weights and the average on the host."""
    nets = {"g": (gan.g, gan.g.net), "d": (gan.d, gan.d.net), "average": (gan.g, gan.g.ema.net)}
    named = {who: player.strategy.weights(net) for who, (player, net) in nets.items()}
    return {f"{who}/{key}": value.cpu() for who, weights in named.items() for key, value in weights.items()}


@cache
def plain(device):
    return held(played("none", replace(ALONE, device=torch.device(device))))


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("device", DEVICES)
def test_one_rank_is_none(device, name):
    with world_on(device) as world:
        assert distance(held(played(name, world)), plain(device)) <= 1e-10


@pytest.mark.gpu
@needs_one
def test_the_accelerator_computes_what_the_cpu_computes():
    assert distance(plain("cuda"), plain("cpu")) <= 1e-9


@pytest.mark.gpu
@needs_one
@pytest.mark.parametrize("name", ["none", *STRATEGIES])
def test_an_offloaded_optimiser_lies_on_the_host_and_steps_the_same(name):
    how = {"dtype": torch.float32}
    with world_on("cuda") as world:
        there, here = played(name, world, **how), played(name, world, memory=MemoryOptions(offload=True), **how)
        for player in (here.g, here.d):
            state = [t for entry in player.optimizer.state.values() for t in entry.values() if t.dim()]
            assert state and {t.device.type for t in state} == {"cpu"}
        assert distance(held(here), held(there)) <= 1e-4  # fused on the device, plain on the host


@pytest.mark.parametrize("name", ["none", "ddp", "zero1", "local_sgd"])
@pytest.mark.parametrize("device", DEVICES)
def test_pure_low_weights_train_beside_float32_ones(device, name):
    with world_on(device) as world:
        gan = played(name, world, dtype=torch.float32, memory=MemoryOptions(weight_dtype=torch.bfloat16))
        for player in (gan.g, gan.d):
            assert isinstance(player.optimizer, MasterWeights)
            assert {copy.dtype for copy in player.optimizer.copies} == {torch.float32}
            assert torch.bfloat16 in {weight.dtype for weight in player.net.parameters()}
        assert all(value.isfinite().all() for value in held(gan).values())
        assert distance(held(gan), held(played(name, world, steps=0, dtype=torch.float32))) > 1e-3


@pytest.mark.parametrize("name", ["ddp", "zero1", "zero3"])
@pytest.mark.parametrize("device", DEVICES)
def test_gradients_travel_in_bf16(device, name):
    """One rank adds nothing up, so all that shows is the rounding of the hook, if the device's backend runs it."""
    with world_on(device) as world:
        narrow = held(played(name, world, steps=1, dtype=torch.float32, memory=MemoryOptions(bf16_reduce=True)))
        wide = held(played(name, world, steps=1, dtype=torch.float32))
        assert all(value.isfinite().all() for value in narrow.values())
        assert distance(narrow, wide) <= 0.05  # a step of Adam is 1e-2 whatever the gradient


@pytest.mark.gpu
@needs_one
@pytest.mark.parametrize("name", ["ddp", "zero1", "zero3"])
def test_fp16_trains_under_a_loss_scale(tmp_path, name):
    last, trainer = run(tmp_path, "cuda", "g.precision=fp16", "d.precision=fp16", *strategies(name))
    assert all(torch.isfinite(torch.tensor(value)) for value in last.values()), last
    assert int(trainer.gan.g.updates) >= 15  # the scale may have to come down first
    assert {p.dtype for p in trainer.gan.g.net.parameters()} == {torch.float32}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("device", DEVICES)
def test_a_recipe_trains_in_bf16(tmp_path, device, name):
    if device == "cpu" and torch.cuda.is_available():
        pytest.skip("a recipe takes the accelerator where there is one")
    last, _ = run(tmp_path, device, "g.precision=bf16", "d.precision=bf16", *strategies(name))
    assert all(torch.isfinite(torch.tensor(value)) for value in last.values()), last


def run(folder, device, *words):
    """What the last step of a small run told, and its trainer."""
    with world_on(device) as world:
        config = read_recipe("digits", [*SMALL, *QUIET, *words])
        trainer = build.trainer(config, folder, print, lambda: False, world=world)
        return train_and_read(trainer, world.sum)[0][-1], trainer


def strategies(name):
    return [f"{side}.strategy={name}" for side in "gd"]


@pytest.mark.parametrize("name", ["ddp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("zero1", "zero3"))])
@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), *DEVICES[1:]])
def test_two_ranks_that_share_a_device_are_the_batch(tmp_path, device, name):
    """nccl refuses two ranks on one device, so they speak by gloo, which carries tensors of a device, too."""
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        "tests.gpu.two_on_one",
        str(tmp_path / "store"),
        device,
        name,
    ]
    start = partial(subprocess.Popen, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    more = environment(PYTHONPATH=f"{ROOT / 'src'}:{ROOT}", GLOO_SOCKET_IFNAME="lo")
    ranks = [start([*command, str(rank)], env=more) for rank in range(2)]
    try:
        said = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if device != "cpu" and any(rank.returncode == -signal.SIGSEGV for rank in ranks):
        pytest.skip(f"torch crashes in gloo's collectives of {device} tensors that gather the weights of {name}")
    if any("UNSUPPORTED" in text for text in said):
        pytest.skip(f"gloo does not carry what {name} sends on {device}: {said[0][-200:]}")
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)
