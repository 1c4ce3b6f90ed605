"""2n steps = n steps, save, a new process's objects, n steps: bit for bit, through the trainer and its files."""

import pytest
import torch

from paragan import build
from paragan.config import read_recipe
from tests.tiny_run import train_and_read

SETTINGS = [
    "data.size=8", "model.width=8", "model.latent=16", "train.batch=16", "every.sample_kimg=0.08",
    "every.save_kimg=0.064",
    "every.keep=2", "evaluation.features=null", "d.updates_per_step=2", "g.micro_batches=2",
]  # fmt: skip


def trainer(folder, kimg, *more):
    return build.trainer(read_recipe("digits", [*SETTINGS, f"train.kimg={kimg}", *more]), folder, print, lambda: False)


def tensors(run) -> dict[str, torch.Tensor]:
    return {
        f"{name}.{k}": v
        for name, p in run.players.items()
        for net in (p.net, p.ema.net if p.ema else p.net)
        for k, v in net.state_dict().items()
    }


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("scheme=shared_fakes", "g.precision=bf16", "d.precision=bf16"),
        (
            *("augment=diffaugment", "g.micro_batches=1", "g.ema={half_life_kimg: 0.02, start_kimg: 0.04}"),
            *("g.schedule={name: linear, end: 20}", "d.schedule={name: cosine, warmup: 3, end: 20}"),
            "penalties=[{name: r1, weight: 1.0, interval: 3}]",
        ),
    ],
)
def test_stop_and_go_on(tmp_path, more):
    straight, first = trainer(tmp_path / "a", 0.256, *more), trainer(tmp_path / "b", 0.128, *more)
    told, events = train_and_read(straight)
    list(first.run())
    second = trainer(tmp_path / "b", 0.256, *more)
    assert second.resume()
    assert second.clock.step == 4
    rest, _ = train_and_read(second)
    assert all(torch.equal(value, tensors(second)[name]) for name, value in tensors(straight).items())
    assert (straight.batches.position, second.batches.position) == (16, 16)
    assert rest == told[4:]
    assert [e.step for e in events if e.kind == "checkpoint"] == [2, 4, 6, 8]
    assert [e.step for e in events if e.kind == "samples"] == [0, 3, 5, 8]


def test_two_runs_of_one_seed_are_identical_and_of_two_seeds_are_not(tmp_path):
    a, b, c = (trainer(tmp_path / name, 0.128, *more) for name, more in (("a", ()), ("b", ()), ("c", ("seed=1",))))
    for run in (a, b, c):
        list(run.run())
    assert all(torch.equal(value, tensors(b)[name]) for name, value in tensors(a).items())
    assert any(not torch.equal(value, tensors(c)[name]) for name, value in tensors(a).items())


def test_a_stop_between_steps_saves(tmp_path):
    run = trainer(tmp_path / "a", 0.256)
    asked = iter([False, False, False, True])  # step 3 is not a step that is saved anyway
    run.stop = lambda: next(asked)
    events = list(run.run())
    assert [event.step for event in events if event.kind == "checkpoint"][-1] == run.clock.step == 3
    assert not run.is_finished
