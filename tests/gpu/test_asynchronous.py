"""On an accelerator both players of an asynchronous run have a stream of their own: no delay is still synchrony."""

import pytest
import torch

from paragan import build
from paragan.config import read_recipe
from paragan.schemes import shared_fakes
from paragan.schemes.asynchronous import Options, Scheme
from tests.distributed import cases_tensors
from tests.gpu.test_first_light import SMALL, moved, on
from tests.laws.small_gan import batches, distance, play
from tests.tiny_run import train_and_read

needs_one = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_one])]


@pytest.mark.parametrize("device", DEVICES)
def test_no_delay_is_synchrony(device):
    there, here, scheme = on(device), on("cpu"), Scheme(Options(staleness=0))
    play(there, scheme, moved(batches(), device), 6)
    scheme.quiesce()
    scheme.close()
    play(here, shared_fakes.Scheme(), batches(), 6)
    for a, b in ((there.g, here.g), (there.d, here.d)):
        assert distance({k: v.cpu() for k, v in a.net.state_dict().items()}, dict(b.net.state_dict())) <= 1e-9


@pytest.mark.parametrize("device", DEVICES)
def test_a_run_with_delay(tmp_path, device):
    """What is here is used: the CPU where there is no accelerator."""
    trainer = build.trainer(read_recipe("digits", [*SMALL, "scheme.name=asynchronous"]), tmp_path, print, lambda: False)
    assert next(trainer.gan.g.net.parameters()).is_cuda == (device == "cuda") or torch.cuda.is_available()
    numbers, events = train_and_read(trainer)
    last = numbers[-1]
    assert all(torch.isfinite(torch.tensor(value)) for value in last.values()), last
    assert max(int(lag) for event in events if event.kind == "delays" for lag in event.values["g"]["lag"]) <= 1
    assert int(trainer.gan.g.updates) == int(trainer.gan.d.updates) == 20


@pytest.mark.gpu
@needs_one
def test_fakes_keep_their_texts_on_two_streams(tmp_path):
    """G's stream waits for the batches, which another one copies and normalises."""
    scheme = {"name": "asynchronous", "staleness": 1, "cached": 0.5}
    more = {"train.batch": 2, "train.kimg": 0.4, "d.updates_per_step": 2}
    cases_tensors.trainer(tmp_path, nets="checked ragged", scheme=scheme, **more).run()
