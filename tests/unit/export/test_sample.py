"""`paragan sample`: sheets and films, and the words that do not fit."""

from itertools import pairwise

import numpy as np
import pytest
import torch
import typer
from PIL import Image

import paragan as pg
from paragan.cli import sample as verb
from paragan.cli.main import main
from paragan.core.errors import ConfigError
from paragan.export.class_labels import class_numbers
from paragan.game import latents
from paragan.storage.image_sheet import make_sheet
from paragan.writers.images import to_pil_image
from tests.tiny_run import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample") / "run"
    train(folder)
    return folder


@pytest.fixture
def sample(run, capfd):
    """Runs the verb; returns where it says the file is."""
    app = typer.Typer()
    app.command()(verb.sample_command)

    def call(*words, path=run):
        app([str(path), *map(str, words)], standalone_mode=False)
        return capfd.readouterr().out.strip()

    return call


def read(path) -> Image.Image:
    with Image.open(path) as file:
        return file.copy()


def tiles_of(path, columns: int, side: int = 32) -> list[bytes]:
    """The tiles of a sheet, row by row."""
    whole, step = read(path), side + 2
    rows = whole.height // step
    boxes = [(c * step, r * step, c * step + side, r * step + side) for r in range(rows) for c in range(columns)]
    return [whole.crop(box).tobytes() for box in boxes]


def test_sample_without_options_writes_one_sheet(run, sample):
    where = sample()
    assert where == str(run / "samples" / "sample-step-4-seed-0.png")
    assert read(where).size == (10 * 34, 7 * 34)


def test_sample_command_equals_library(run, sample, tmp_path):
    sample("--num", 7, "--seed", 3, "--class", 3, "--class", 9, "--truncation", 0.5, "--out", tmp_path / "a.png")
    images = pg.load(run).sample(7, labels=["3", "9"], seed=3, truncation=0.5)
    assert read(tmp_path / "a.png").tobytes() == to_pil_image(make_sheet(images.tensor, 7)).tobytes()


def test_sample_grid_has_requested_shape(sample, tmp_path):
    sample("--grid", "3x4", "--out", tmp_path / "a.png")
    sample("--num", 12, "--out", tmp_path / "b.png")
    assert read(tmp_path / "a.png").size == (4 * 34, 3 * 34)
    assert tiles_of(tmp_path / "a.png", 4) == tiles_of(tmp_path / "b.png", 10)[:12]


def test_sample_class_rows_share_latents(run, sample, tmp_path):
    sample("--classes", "--grid", "2x5", "--class", 7, "--class", 2, "--class", 1, "--out", tmp_path / "a.png")
    generator = pg.load(run)
    z = generator.latents(5)
    expected = generator.generate(torch.cat([z, z]), torch.tensor([7] * 5 + [2] * 5))
    assert read(tmp_path / "a.png").tobytes() == to_pil_image(make_sheet(expected.tensor, 5)).tobytes()
    sample("--classes", "--out", tmp_path / "b.png")
    assert read(tmp_path / "b.png").size == (10 * 34, 10 * 34)


def test_sample_exported_file_equals_run(run, sample, tmp_path):
    from paragan.cli.export import export

    export(run, out=tmp_path / "g.safetensors")
    sample("--out", tmp_path / "a.png")
    where = sample(path=tmp_path / "g.safetensors")
    assert where == str(tmp_path / "sample-step-4-seed-0.png")
    assert read(where).tobytes() == read(tmp_path / "a.png").tobytes()


def test_sample_walk_is_a_looping_film(run, sample):
    where = sample("--walk", 3, "--frames", 12)
    assert where == str(run / "samples" / "walk-step-4-seed-0.webp")
    with Image.open(where) as film:
        assert (film.format, film.n_frames, film.size, film.info["loop"]) == ("WEBP", 12, (130, 130), 0)
    with Image.open(sample("--walk", 2, "--grid", "2x3", "--classes")) as film:
        assert (film.n_frames, film.size) == (32, (3 * 34, 2 * 34))
    assert not list((run / "samples").glob(".*"))


def test_a_walk_keeps_to_the_sphere_and_closes():
    points, _ = latents.draw(pg.Prior(seed=0, latent=16), 6)
    points = torch.nn.functional.normalize(points, dim=1).unflatten(0, (3, 2))
    frames = list(latents.walk(points, 300))
    assert len(frames) == 300
    assert all(torch.allclose(z.norm(dim=1), torch.ones(2), atol=1e-5) for z in frames)
    for number, point in enumerate(points):
        assert torch.allclose(frames[100 * number], point, atol=1e-6)
    steps = [(a - b).norm(dim=1) for a, b in pairwise([*frames, frames[0]])]
    for leg in range(3):  # even, to the end and round
        lengths = torch.stack(steps[100 * leg : 100 * leg + 100])
        assert torch.allclose(lengths, lengths[0].expand_as(lengths), atol=1e-5)


def test_slerp_between_parallel_latents_is_straight():
    a = torch.tensor([[1.0, 2.0]])
    for b in (a, 3 * a, -a):
        assert torch.allclose(latents.slerp(a, b, 0.25), 0.75 * a + 0.25 * b)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "a.bmp"], "--out: cannot write 'a.bmp'; a sheet of images is .png, .jpg or .jpeg"),
        (["--walk", "3", "--out", "a.png"], "--out: cannot write 'a.png'; an animation is .webp, .gif or .mp4"),
        (["--frames", "9"], "--frames applies to a film; give --walk POINTS too"),
        (["--grid", "3"], "--grid: '3' is not ROWSxCOLUMNS, such as 4x10"),
        (["--grid", "1000x1000"], "--grid: 1,000,000 images are too many"),
        (["--grid", "3x4", "--num", "12"], "--num does not combine with --grid or --classes"),
        (["--classes", "--grid", "11x3"], "--grid: 11 rows are more than the 10 classes"),
        (["--class", "x"], "--class: unknown class 'x'; choose one of 0, 1, 2"),
        (["--truncation", "2"], "--truncation must be above 0 and at most 1, not 2.0"),
        (["--truncation", "nan", "--out", "files"], "--truncation must be above 0 and at most 1, not nan"),
    ],
)
def test_sample_invalid_options_are_one_line(sample, words, message):
    with pytest.raises(ConfigError) as caught:
        sample(*words)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_classes_of_an_unconditional_generator(tmp_path, sample):
    train(tmp_path / "run", "model.conditional=false")
    for words, message in (
        (["--classes"], "--classes: the generator is unconditional"),
        (["--class", "1"], "--class: this generator is unconditional"),
    ):
        with pytest.raises(ConfigError, match=message):
            sample(*words, path=tmp_path / "run")
    assert sample("--num", 2, path=tmp_path / "run")


def test_sheet_of_mixed_styles(tmp_path, sample):
    train(tmp_path / "run", "model=stylegan2", "model.width=8", "model.style=8", "model.latent=8", "data.size=8")
    with_mix = ["--mix", 2, "--grid", "3x4", "--out", tmp_path / "mixed.png"]
    assert read(sample(*with_mix, path=tmp_path / "run")).size == (4 * 34, 3 * 34)
    assert len(set(tiles_of(tmp_path / "mixed.png", 4))) == 12
    for words, expected in ((["--mix", 99], "layers"), (["--mix", 2, "--truncation", 0.5], "combine")):
        with pytest.raises(ConfigError, match=expected):
            sample(*words, path=tmp_path / "run")
    with pytest.raises(ConfigError, match="no styles"):
        sample("--mix", 2)


@pytest.mark.parametrize("verb", [["sample", "RUN"], ["apply", "RUN", "INPUT", "--out", "OUT"]])
def test_seed_below_0_is_refused_with_the_option(capsys, verb):
    assert main([*verb, "--seed", "-1"]) == 2
    assert "--seed" in capsys.readouterr().err


@pytest.mark.parametrize(("label", "hint"), [("-1", ""), ("11", ""), ("thre", "did you mean 'three'")])
def test_a_number_of_no_class_is_like_no_other(label, hint):
    with pytest.raises(ConfigError) as caught:
        class_numbers(label, ["1", "three"], 2)
    assert ("did you mean" in str(caught.value)) == bool(hint)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    "labels", [[2, 0], (2, 0), np.array([2, 0]), torch.tensor([2, 0]), torch.tensor([[2], [0]])[:, 0]]
)
def test_classes_are_named_by_a_list_or_an_array(labels):
    assert class_numbers(labels, (), 3) == [2, 0]


@pytest.mark.parametrize("label", [2, np.int64(2), np.array(2), torch.tensor(2), "2"])
def test_a_class_is_named_by_any_integer(label):
    assert class_numbers(label, (), 3) == [2]
