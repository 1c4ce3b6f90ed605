"""`apply` of trained generators to inputs of other sizes than those of training, beside the network called by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save

import paragan as pg
from paragan.cli.main import main

SIZES = {"wide": (40, 24), "tiny": (3, 5), "square": (64, 64)}  # width, height
RUNS = {
    "pix2pix": ("pix2pix-facades", {"model.width": 4, "evaluation.num_images": 2}, "pairs"),
    "superres": ("superres", {"model.width": 4, "model.blocks": 1, "penalties": [{"name": "l1"}]}, "photos"),
    "translate": ("translate", {"model.width": 4, "model.blocks": 1, "data.held_out": 0.5}, "two"),
    "vqgan": (
        "vqgan-cifar10",
        {
            "model.width": 8,
            "data": {"name": "folder", "flip": False},
            "balancer": None,
            "penalties": [{"name": "l1"}, {"name": "codebook"}],
        },
        "photos",
    ),
}


def noise(width, height, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for folder, width in {"pairs": 64, "photos": 32, "two/a": 32, "two/b": 32}.items():
        (root / folder).mkdir(parents=True)
        for number in range(6):
            noise(width, 32, number).save(root / folder / f"{number}.png")
    (root / "inputs" / "sub").mkdir(parents=True)
    for number, (name, size) in enumerate(SIZES.items()):
        noise(*size, number).save(root / "inputs" / f"{name}.png")
    noise(9, 9).save(root / "inputs" / "sub" / "wide.jpg")
    return root


@pytest.fixture(scope="module")
def runs(data):
    """A run of two steps of each kind of generator of images from images."""
    for name, (recipe, words, folder) in RUNS.items():
        tiny = {"data.path": str(data / folder), "data.size": 32, "train.batch": 2, "train.kimg": 0.004}
        pg.train(recipe, {**words, **tiny, "every.score_kimg": 0, "writers": ["jsonl"]}, out=data / "runs" / name)
    return data / "runs"


def by_hand(name, net, x):
    """The network called without the library, on sizes that it takes."""
    with torch.no_grad():
        match name:
            case "pix2pix":
                return net(None, None, x)
            case "translate":
                return net.to_b(x)
            case "vqgan":
                return net(x).images
            case _:
                return net(x)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("size", [(32, 32), (64, 96)])
def test_apply_equals_the_network_called_by_hand(runs, name, size):
    sampler = pg.load(runs / name)
    x = torch.rand(2, 3, *size) * 2 - 1
    direction = "a_to_b" if name == "translate" else None
    y = sampler.apply(x, direction, mode="eval")
    torch.testing.assert_close(y, by_hand(name, sampler.net, x), rtol=0, atol=1e-6)
    torch.testing.assert_close(sampler.apply(x[0], direction, mode="eval"), y[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", RUNS)
def test_apply_writes_a_file_of_the_right_size_for_each_input(runs, data, tmp_path, capsys, name):
    words = ["--direction", "b_to_a"] if name == "translate" else []
    factor = 4 if name == "superres" else 1
    assert main(["apply", str(runs / name), str(data / "inputs"), "--out", str(tmp_path / "out"), *words]) == 0
    sizes = {path.relative_to(tmp_path / "out").as_posix(): size_of(path) for path in images(tmp_path)}
    expected = {f"{name}.png": (factor * w, factor * h) for name, (w, h) in SIZES.items()}
    assert sizes == {**expected, "sub/wide.png": (9 * factor, 9 * factor)}
    assert "4 files" in capsys.readouterr().out


def size_of(path):
    with Image.open(path) as image:
        return image.size


def images(folder):
    return sorted(folder.rglob("*.png"))


def test_pixels_of_a_file_are_those_of_apply(runs, data, tmp_path):
    main(["apply", str(runs / "vqgan"), str(data / "inputs" / "square.png"), "--out", str(tmp_path)])
    image = Image.open(data / "inputs" / "square.png")
    expected = pg.load(runs / "vqgan").apply(image)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "square.png")), np.asarray(expected))


def test_tokens_written_and_read_give_the_output(runs, data, tmp_path):
    vqgan = str(runs / "vqgan")
    assert main(["apply", vqgan, str(data / "inputs"), "--out", str(tmp_path / "tokens"), "--encode"]) == 0
    assert main(["apply", vqgan, str(tmp_path / "tokens"), "--out", str(tmp_path / "decoded"), "--decode"]) == 0
    assert main(["apply", vqgan, str(data / "inputs"), "--out", str(tmp_path / "direct")]) == 0
    for path in images(tmp_path / "direct"):
        decoded = np.asarray(Image.open(tmp_path / "decoded" / path.relative_to(tmp_path / "direct")), np.int64)
        assert np.abs(decoded - np.asarray(Image.open(path))).max() <= 1
    stored = load_file(tmp_path / "tokens" / "wide.safetensors")
    assert stored["tokens"].shape == (6, 10)
    assert stored["sizes"].tolist() == [24, 40]


LARGE = {"tokens": torch.full((2, 2), 10**6), "sizes": torch.ones(2)}


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, save({"tokens": torch.ones(2)}), save(LARGE)])
def test_damaged_tokens_are_named(runs, tmp_path, capsys, content):
    (tmp_path / "bad.safetensors").write_bytes(content)
    out = str(tmp_path / "out")
    assert main(["apply", str(runs / "vqgan"), str(tmp_path / "bad.safetensors"), "--out", out, "--decode"]) == 2
    assert "bad.safetensors" in capsys.readouterr().err


def test_stopped_command_continues_and_writes_what_an_unbroken_one_does(runs, data, tmp_path, monkeypatch):
    from paragan.runs import apply_files

    words = ["apply", str(runs / "superres"), str(data / "inputs"), "--out"]
    assert main([*words, str(tmp_path / "whole")]) == 0
    write, calls = apply_files.write_bytes, []

    def stopping(target, content):
        calls.append(target)
        if len(calls) == 3:
            raise KeyboardInterrupt
        write(target, content)

    with monkeypatch.context() as patch:
        patch.setattr(apply_files, "write_bytes", stopping)
        assert main([*words, str(tmp_path / "parts")]) != 0
    assert len(images(tmp_path / "parts")) == 2
    assert main([*words, str(tmp_path / "parts")]) == 0
    whole, parts = ({p.name: p.read_bytes() for p in (tmp_path / name).rglob("*.png")} for name in ("whole", "parts"))
    assert whole == parts


def test_damaged_inputs_are_named_and_left_out(runs, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    noise(20, 20).save(tmp_path / "in" / "good.png")
    whole = (tmp_path / "in" / "good.png").read_bytes()
    (tmp_path / "in" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "in" / "text.png").write_text("no image")
    assert main(["apply", str(runs / "superres"), str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 2
    assert [path.name for path in images(tmp_path / "out")] == ["good.png"]
    message = capsys.readouterr().err
    assert "cut.png" in message
    assert "text.png" in message


def test_inputs_that_differ_in_their_endings_keep_them(runs, tmp_path):
    (tmp_path / "in").mkdir()
    for ending in ("png", "jpg"):
        noise(8, 8).save(tmp_path / "in" / f"same.{ending}")
    assert main(["apply", str(runs / "superres"), str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 0
    assert [path.name for path in images(tmp_path / "out")] == ["same.jpg.png", "same.png.png"]


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("translate", [], "a_to_b and b_to_a"),
        ("superres", ["--direction", "a_to_b"], "--direction"),
        ("superres", ["--encode"], "tokens"),
        ("vqgan", ["--encode", "--decode"], "--decode"),
        ("vqgan", ["--encode", "--tile", "32"], "--tile"),
        ("digits", [], "latents"),
    ],
)
def test_what_does_not_apply_is_one_line(runs, data, tmp_path, capsys, name, words, expected):
    if name == "digits":
        pg.train("digits", {"train.kimg": 0.016, "train.batch": 8, "evaluation.features": None}, out=runs / name)
        capsys.readouterr()
    assert main(["apply", str(runs / name), str(data / "inputs"), "--out", str(tmp_path / "out"), *words]) == 2
    message = capsys.readouterr().err.strip()
    assert expected in message
    assert "\n" not in message
    assert not images(tmp_path)


def test_folder_of_other_results_is_refused_and_left_alone(runs, data, tmp_path, capsys):
    out = tmp_path / "out"
    words = [str(data / "inputs"), "--out", str(out)]
    assert main(["apply", str(runs / "superres"), *words]) == 0
    before = {path: path.read_bytes() for path in images(out)}
    assert main(["apply", str(runs / "vqgan"), *words]) == 2
    assert main(["apply", str(runs / "superres"), *words, "--tile", "16"]) == 2
    (out / "applied.json").write_text(json.dumps({}))
    assert main(["apply", str(runs / "superres"), *words]) == 2
    (out / "applied.json").unlink()
    assert main(["apply", str(runs / "superres"), *words]) == 2
    assert {path: path.read_bytes() for path in images(out)} == before
    assert main(["apply", str(runs / "superres"), str(data / "inputs"), "--out", str(data / "inputs" / "new")]) == 2
    assert not (data / "inputs" / "new").exists()


def test_archive_that_leads_out_of_its_folder_is_refused(runs, tmp_path):
    import zipfile

    noise(8, 8).save(tmp_path / "image.png")
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.write(tmp_path / "image.png", "../../escaped.png")
    out = tmp_path / "deep" / "er" / "out"
    assert main(["apply", str(runs / "superres"), str(tmp_path / "bad.zip"), "--out", str(out)]) == 2
    assert {path.name for path in tmp_path.rglob("*.png")} == {"image.png"}


def test_tiles_of_a_file_equal_the_whole_away_from_seams(runs, tmp_path):
    noise(96, 80).save(tmp_path / "photo.png")
    for folder, words in {"whole": [], "tiles": ["--tile", "48", "--overlap", "32"]}.items():
        command = ["apply", str(runs / "superres"), str(tmp_path / "photo.png"), "--out", str(tmp_path / folder)]
        assert main([*command, *words]) == 0
    whole, tiles = (np.asarray(Image.open(tmp_path / name / "photo.png"), np.int64) for name in ("whole", "tiles"))
    assert np.abs(whole - tiles).max() <= 1


class Doubling(torch.nn.Module):
    """A generator of a program: images of any size to images of twice the size."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 12, 3, padding=1)

    def forward(self, small):
        return torch.nn.functional.pixel_shuffle(self.conv(small), 2).tanh()


class Scalar(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 1, 3)

    def forward(self, image):
        return self.conv(image).mean((1, 2, 3))


def test_networks_of_a_program_are_applied(tmp_path):
    data = {"small": torch.rand(8, 3, 8, 8) * 2 - 1, "image": torch.rand(8, 3, 16, 16) * 2 - 1}
    settings = {"train.batch": 4, "train.kimg": 0.008}
    pg.Trainer(Doubling(), Scalar(), data, settings=settings, out=tmp_path / "run").run()
    sampler = pg.load(Path(tmp_path / "run"), generator=Doubling)
    x = torch.rand(1, 3, 20, 13) * 2 - 1
    y = sampler.apply(x)
    with torch.no_grad():
        assert y.shape == (1, 3, 40, 26)
        torch.testing.assert_close(y[..., :30, :20], sampler.net(x)[..., :30, :20], rtol=0, atol=1e-6)
