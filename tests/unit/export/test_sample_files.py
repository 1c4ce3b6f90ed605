"""`paragan sample --out DIR` and `--out FILE.npz`: the images of `Sampler.sample`, any number of them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import paragan as pg
from paragan.cli.main import main
from paragan.export.generator_file import GeneratorInfo
from paragan.export.sampler import Sampler
from paragan.runs.sample_files import _write_images, write_files
from paragan.runs.write_samples import SampleRequest, _target

NUM = 70  # more than a block of latents

CONFIG = SimpleNamespace(evaluation=SimpleNamespace(sampling="eval"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with classes."""
    out = tmp_path_factory.mktemp("runs") / "digits"
    tiny = {"data.size": 8, "model.width": 4, "model.latent": 8, "train.batch": 16, "train.kimg": 0.064}
    pg.train("digits", {**tiny, "evaluation.features": None, "writers": ["jsonl"]}, out=out)
    return out


def sample(run, out, *words):
    return main(["sample", str(run), "--num", str(NUM), "--out", str(out), *words])


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("L"))


def expected(run, n=NUM, **options):
    x = pg.load(run).sample(n, **options).tensor
    return ((x + 1) * 127.5).round().to(torch.uint8)[:, 0].numpy()


@pytest.mark.parametrize("file_format", ["png", "webp"])
def test_files_are_the_images_of_sample(run, tmp_path, file_format):
    assert sample(run, tmp_path / "out", "--format", file_format, "--seed", "3") == 0
    files = sorted((tmp_path / "out").glob(f"*.{file_format}"))
    assert [file.stem for file in files] == [f"{number:06}" for number in range(NUM)]
    difference = np.stack([pixels(file) for file in files]).astype(int) - expected(run, seed=3)
    assert np.abs(difference).max() <= 1


@pytest.mark.parametrize("words", [["--truncation", "0.5"], ["--class", "3", "--class", "8"]])
def test_options_of_a_sheet_apply_to_files(run, tmp_path, words):
    assert sample(run, tmp_path / "out", *words) == 0
    options = {"truncation": 0.5} if "--truncation" in words else {"labels": ["3", "8"]}
    files = sorted((tmp_path / "out").glob("*.png"))
    assert np.abs(np.stack(list(map(pixels, files))).astype(int) - expected(run, **options)).max() <= 1


def test_each_class_has_a_folder_and_so_many_images(run, tmp_path):
    assert main(["sample", str(run), "--num", "3", "--classes", "--out", str(tmp_path / "out")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == list("0123456789")
    assert all(len(list((tmp_path / "out" / str(digit)).glob("*.png"))) == 3 for digit in range(10))
    image = pixels(tmp_path / "out" / "7" / "000002.png").astype(int)
    assert np.abs(image - expected(run, 3, labels=7)[2]).max() <= 1


def test_larger_number_adds_files_and_missing_ones_are_written_again(run, tmp_path):
    assert main(["sample", str(run), "--num", "5", "--out", str(tmp_path / "out")]) == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.png")}
    (tmp_path / "out" / "000002.png").unlink()
    (tmp_path / "out" / "000004.png").write_bytes(b"mine")
    assert main(["sample", str(run), "--num", "9", "--out", str(tmp_path / "out")]) == 0
    after = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.png")}
    assert len(after) == 9
    assert after["000002.png"] == before["000002.png"]
    assert after["000004.png"] == b"mine"  # files that are there are left alone


def test_folder_of_other_options_is_refused(run, tmp_path, capsys):
    assert main(["sample", str(run), "--num", "2", "--out", str(tmp_path / "out")]) == 0
    assert main(["sample", str(run), "--num", "2", "--seed", "9", "--out", str(tmp_path / "out")]) == 2
    assert "other options" in capsys.readouterr().err
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "mine.txt").write_text("mine")
    assert main(["sample", str(run), "--num", "2", "--out", str(tmp_path / "photos")]) == 2
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["mine.txt"]


def test_array_has_images_and_labels(run, tmp_path):
    assert sample(run, tmp_path / "samples.npz") == 0
    with np.load(tmp_path / "samples.npz") as arrays:
        assert arrays["arr_0"].dtype == np.uint8
        assert np.abs(arrays["arr_0"][..., 0].astype(int) - expected(run)).max() <= 1
        assert arrays["arr_1"].tolist() == list(pg.load(run).sample(NUM).labels)


@pytest.mark.parametrize(
    "words",
    [
        ["--grid", "2x3"],
        ["--walk", "4"],
        ["--frames", "8"],
        ["--mix", "2"],
        ["--class", "nonsense"],
        ["--truncation", "2"],
        ["--num", "0"],
    ],
)
def test_what_does_not_apply_is_one_line(run, tmp_path, capsys, words):
    assert main(["sample", str(run), *words, "--out", str(tmp_path / "out")]) == 2
    assert words[0] in (message := capsys.readouterr().err.strip()) or "truncation" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "words", [[], ["--out", "sheet.png"], ["--out", "film.gif", "--walk", "2"], ["--out", "a.npz"]]
)
def test_format_of_single_files_is_refused_for_others(words, capsys):
    assert main(["sample", "runs/x", "--format", "webp", *words]) == 2
    assert "--format applies to single files" in capsys.readouterr().err


def test_format_of_single_files_applies_to_a_folder_with_a_dot(tmp_path):
    (tmp_path / "out.v2").mkdir()
    assert SampleRequest(out=tmp_path / "out.v2", file_format="webp").has_single_files


def test_names_of_files_do_not_depend_on_their_number(tmp_path):
    blocks = [(7, [Image.new("L", (1, 1))]), (1_000_000, [Image.new("L", (1, 1))])]
    sampler = SimpleNamespace(blocks=lambda num, labels, **options: iter(blocks))
    list(_write_images(sampler, SampleRequest(out=tmp_path), 1_000_001, None, tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000007.png", "1000000.png"]


def test_sheet_of_too_many_images_names_the_folder(run, tmp_path, capsys):
    assert main(["sample", str(run), "--num", "20000", "--out", str(tmp_path / "sheet.png")]) == 2
    assert "folder" in capsys.readouterr().err


class Noisy(torch.nn.Module):
    """A generator with dropout: the only difference between its images in train-stats."""

    latent, num_classes = 4, 0

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(48))

    def forward(self, z_BZ, y_B=None):
        x = torch.nn.functional.dropout(self.weight.expand(len(z_BZ), 48), 0.5, self.training)
        return x.reshape(len(z_BZ), 3, 4, 4) / 2


def test_blocks_draw_dropout_as_sample_does():
    info = GeneratorInfo(shape=(3, 4, 4), class_names=(), step=1, images=1)
    sampler = Sampler(net=Noisy(), info=info, seed=0, config=CONFIG)
    whole = sampler.sample(NUM, mode="train-stats").tensor
    blocks = [images.tensor for _, images in sampler.blocks(NUM, mode="train-stats")]
    assert torch.equal(torch.cat(blocks), whole)
    assert not torch.equal(whole[64:NUM], whole[: NUM - 64])


def test_progress_of_an_array_without_labels_counts_images(tmp_path):
    info = GeneratorInfo(shape=(3, 4, 4), class_names=(), step=1, images=1)
    sampler = Sampler(net=Noisy(), info=info, seed=0, config=CONFIG)
    done = []
    write_files(sampler, SampleRequest(num=NUM, out=tmp_path / "a.npz"), lambda *numbers: done.append(numbers))
    assert done == [(64, NUM), (NUM, NUM)]


CLASSES = {
    "leads out": ("..", ".", "", "../../evil", "/etc", "...."),
    "record": ("sampled.json", "Sampled.JSON", "a", "b", "c", "d"),
    "capitals": ("A", "a", "b", "B", "c", "C"),
    "other characters": ("ä", "ö", "x/y", "x\\y", "new\nline", "x" * 300),
    "usual": ("cat", "dog", "a b", "v1.2", "-", "e"),
}


@pytest.mark.parametrize("names", CLASSES.values(), ids=CLASSES)
def test_folders_of_classes_lie_in_the_output_whatever_the_classes_are_called(run, tmp_path, names):
    sampler = pg.load(run)
    info = replace(sampler.info, class_names=names + tuple(f"class {number}" for number in range(4)))
    out = tmp_path / "deep" / "out"
    for _ in range(2):
        write_files(replace(sampler, info=info), SampleRequest(num=1, out=out, by_class=True), lambda done, total: None)
    paths = [path.relative_to(out) for path in tmp_path.rglob("*.png")]
    assert len(paths) == 10
    assert len({str(path.parent).casefold() for path in paths}) == 10
    assert {len(path.parts) for path in paths} == {2}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep"]


LONG = tuple(str(number) for number in range(60))


@pytest.mark.parametrize(
    ("options", "others"),
    [
        ({"classes": LONG}, {"classes": (*LONG[:-1], "7")}),
        ({"classes": LONG, "mode": "eval"}, {"classes": LONG, "mode": "train-stats"}),
        ({"classes": ("x" * 120 + "\udcff",)}, {"classes": ("x" * 120,)}),  # of a name that is no UTF-8
    ],
)
def test_sheets_of_long_options_have_names_of_their_own(tmp_path, options, others):
    sampler = SimpleNamespace(seed=0, info=SimpleNamespace(step=1))
    names = [_target(sampler, tmp_path / "g.safetensors", SampleRequest(**each)).name for each in (options, others)]
    assert len({*names}) == 2
    assert all(len(name) < 128 and name.endswith(".png") and name.isascii() for name in names)
