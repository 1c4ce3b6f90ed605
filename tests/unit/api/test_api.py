"""`paragan.load`: a run folder or an exported file becomes images, and nothing foreign is run."""

import shutil
from dataclasses import replace
from math import erf, exp, pi, sqrt
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import paragan as pg
from paragan.cli.export import export
from paragan.core.types import Rows
from paragan.export.sampled_images import SampledImages
from paragan.game import latents
from paragan.game.prior import Prior
from paragan.game.sampling import generate_images, sampling_network
from tests.tiny_run import newest, train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A conditional run that is only read."""
    folder = tmp_path_factory.mktemp("api") / "run"
    trainer = train(folder, "g.ema.half_life_kimg=0.1")
    export(folder, out=folder / "g.safetensors")
    return folder, trainer


@pytest.fixture
def run(trained, tmp_path):
    """A copy of it, to spoil."""
    return Path(shutil.copytree(trained[0], tmp_path / "run"))


def test_it_samples_the_averaged_generator(trained):
    folder, trainer = trained
    z, y = trainer.prior.draw("sample", Rows(step=0, first=0, count=5, total=latents.BLOCK))
    expected = generate_images(sampling_network(trainer.players["g"]), z, y)
    found = pg.load(folder).sample(5)
    assert torch.allclose(found.tensor, expected, atol=1e-6)
    assert found.labels == tuple(y.tolist())
    live = generate_images(type(sampling_network(trainer.players["g"]))(module=trainer.players["g"].net), z, y)
    assert not torch.allclose(found.tensor, live, atol=1e-6)


def test_without_an_average_it_samples_the_weights_themselves(tmp_path):
    trainer = train(tmp_path / "run", "g.ema=null")
    z, y = trainer.prior.draw("sample", Rows(step=0, first=0, count=2, total=latents.BLOCK))
    expected = generate_images(sampling_network(trainer.players["g"]), z, y)
    assert torch.allclose(pg.load(tmp_path / "run").sample(2).tensor, expected, atol=1e-6)


def test_an_exported_file_samples_as_its_run_does(trained):
    folder, _ = trained
    run, file = pg.load(folder), pg.load(folder / "g.safetensors")
    assert torch.equal(run.sample(7, seed=3).tensor, file.sample(7, seed=3).tensor)
    assert (run.info, run.seed, run.class_names) == (file.info, file.seed, file.class_names)
    assert run.config == file.config


def test_fewer_images_are_the_first_of_more(trained):
    generator = pg.load(trained[0])
    many = generator.sample(150, seed=1, truncation=0.7)
    for n in (1, 64, 65, 130):
        few = generator.sample(n, seed=1, truncation=0.7)
        assert torch.allclose(few.tensor, many.tensor[:n], atol=1e-5)
        assert few.labels == many.labels[:n]
    assert len(set(many.labels)) == 10


def test_the_seed_is_the_runs_own_unless_given(trained):
    generator = pg.load(trained[0])
    assert torch.equal(generator.sample(3).tensor, generator.sample(3, seed=trained[1].prior.seed).tensor)
    assert not torch.equal(generator.sample(3).tensor, generator.sample(3, seed=1).tensor)


def test_labels_are_taken_in_turn_by_name_or_number(trained):
    generator = pg.load(trained[0])
    assert generator.sample(5, labels=["3", 7]).labels == (3, 7, 3, 7, 3)
    assert generator.sample(2, labels="9").labels == (9, 9)
    assert generator.sample(2, labels=torch.tensor([1, 2])).labels == (1, 2)
    a, b = generator.sample(1, labels=3), generator.sample(1, labels=7)
    assert not torch.equal(a.tensor, b.tensor)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"labels": "cat"}, "labels: unknown class 'cat'; choose one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 or a number"),
        ({"labels": [1, 10]}, "labels: unknown class 10"),
        ({"labels": -1}, "labels: unknown class -1"),
        ({"labels": []}, "labels is an empty list"),
        ({"labels": 1.5}, "labels: unknown class 1.5; choose one of"),
        ({"labels": True}, "labels: unknown class True; choose one of"),
        ({"labels": "9" * 5000}, f"labels: unknown class '{'9' * 59}; choose one of"),
        ({"labels": torch.tensor([[1, 2], [3, 4]])}, "labels: unknown class [1, 2]; choose one of"),
        ({"truncation": 0.0}, "truncation must be above 0 and at most 1, not 0.0"),
        ({"truncation": float("nan")}, "truncation must be above 0 and at most 1, not nan"),
        ({"truncation": "0.5"}, "truncation must be above 0 and at most 1, not '0.5'"),
        ({"n": 0}, "n must be an integer from 1"),
        ({"n": True}, "n must be an integer from 1 to 1,048,576"),
        ({"n": 10**9}, "n must be an integer from 1 to 1,048,576"),
    ],
)
def test_invalid_arguments_are_one_line(trained, wrong, said):
    with pytest.raises(pg.ConfigError) as told:
        pg.load(trained[0]).sample(**{"n": 3, **wrong})
    assert str(told.value).startswith(said)
    assert "\n" not in str(told.value)


def test_an_unconditional_generator_has_no_labels(tmp_path):
    train(tmp_path / "run", "model.conditional=false")
    generator = pg.load(tmp_path / "run")
    assert (generator.sample(2).labels, generator.class_names) == (None, ())
    with pytest.raises(pg.ConfigError, match="this generator is unconditional; leave it out"):
        generator.sample(2, labels=1)


@pytest.mark.parametrize("threshold", [0.04, 0.5, 1.0])
def test_truncation_is_that_of_drawing_again(threshold):
    z, _ = latents.draw(Prior(seed=0, latent=32), 4000)
    cut = latents.truncated(z, threshold)
    assert cut.abs().max() <= threshold
    mass = erf(threshold / sqrt(2))  # the variance of a normal given |z| <= t, by integration by parts
    variance = 1 - 2 * threshold * exp(-(threshold**2) / 2) / sqrt(2 * pi) / mass
    assert cut.var().item() == pytest.approx(variance, rel=0.02)
    order = z.flatten().argsort()
    assert (cut.flatten()[order].diff() >= 0).all()
    assert latents.truncated(z, None) is z


def test_a_run_samples_without_its_data(tmp_path):
    for number in range(24):
        file = tmp_path / "zoo" / ("cat", "dog")[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((8, 8), 90).convert("RGB").save(file)
    train(tmp_path / "run", "data=folder", f"data.path={tmp_path / 'zoo'}", "data.size=8")
    shutil.rmtree(tmp_path / "zoo")
    (tmp_path / "run").rename(tmp_path / "moved")
    generator = pg.load(tmp_path / "moved")
    assert generator.class_names == ("cat", "dog")
    assert generator.sample(2, labels="dog").tensor.shape == (2, 3, 8, 8)
    assert generator.sample(2, labels=["Dog", "CAT"]).labels == (1, 0)
    with pytest.raises(pg.ConfigError, match=r"labels: unknown class 'dogs'.*; did you mean 'dog'"):
        generator.sample(2, labels="dogs")


def test_class_names_that_differ_in_case_only_are_distinguished(trained):
    digits = pg.load(trained[0])
    generator = replace(digits, info=replace(digits.info, class_names=("ab", "AB", "c", *map(str, range(7)))))
    assert generator.sample(3, labels=["ab", "AB", "C"]).labels == (0, 1, 2)
    with pytest.raises(pg.ConfigError, match="unknown class 'Ab'"):
        generator.sample(1, labels="Ab")


def test_only_the_generator_is_read(run):
    (newest(run) / "d.safetensors").unlink()
    assert {name.split("/")[0] for name in load_file(newest(run) / "g.safetensors")} >= {"net", "ema", "optimizer"}
    assert pg.load(run).sample(1).tensor.isfinite().all()


def test_a_pass_has_few_rows_and_the_callers_draws_stay(trained, monkeypatch):
    generator, seen = pg.load(trained[0]), []
    hook = generator.net.register_forward_pre_hook(lambda net, inputs: seen.append(len(inputs[0])))
    before = torch.get_rng_state()
    generator.sample(150)
    pg.load(trained[0])
    hook.remove()
    assert sum(seen) == 150 + 1  # one image shows their size
    assert max(seen) <= latents.BLOCK
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (2, "RGB"), (3, "RGB"), (4, "RGBA")])
def test_images_are_pictures(channels, mode, tmp_path):
    x = torch.linspace(-1.2, 1.2, 2 * channels * 12).reshape(2, channels, 3, 4)
    images = SampledImages(x, (0, 1))
    assert [(image.mode, image.size) for image in images] == [(mode, (4, 3))] * 2
    least, *others = images[0].split()
    assert least.getextrema()[0] == 0
    assert channels != 2 or others[1].getextrema() == (0, 0)  # red and green
    assert (len(images), images[1:].labels) == (2, (1,))
    assert images.save(tmp_path / "new" / "a.png", columns=1) == tmp_path / "new" / "a.png"
    with Image.open(tmp_path / "new" / "a.png") as sheet:
        assert sheet.size == (34, 52)  # 3x4 enlarged eightfold, a gap below and beside
    with pytest.raises(pg.ConfigError, match=r"a sheet of images is \.png, \.jpg or \.jpeg"):
        images.save(tmp_path / "a.bmp")
