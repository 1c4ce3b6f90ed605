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
from tests.unit.export.image_runs import RUNS, SIZES, noise


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
def test_apply_equals_the_network_called_by_hand(image_runs, name, size):
    sampler = pg.load(image_runs / name)
    x = torch.rand(2, 3, *size) * 2 - 1
    direction = "a_to_b" if name == "translate" else None
    y = sampler.apply(x, direction, mode="eval")
    torch.testing.assert_close(y, by_hand(name, sampler.net, x), rtol=0, atol=1e-6)
    torch.testing.assert_close(sampler.apply(x[0], direction, mode="eval"), y[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", RUNS)
def test_apply_writes_a_file_of_the_right_size_for_each_input(image_runs, image_data, tmp_path, capsys, name):
    words = ["--direction", "b_to_a"] if name == "translate" else []
    factor = 4 if name == "superres" else 1
    assert (
        main(["apply", str(image_runs / name), str(image_data / "inputs"), "--out", str(tmp_path / "out"), *words]) == 0
    )
    sizes = {path.relative_to(tmp_path / "out").as_posix(): size_of(path) for path in images(tmp_path)}
    expected = {f"{name}.png": (factor * w, factor * h) for name, (w, h) in SIZES.items()}
    assert sizes == {**expected, "sub/wide.png": (9 * factor, 9 * factor)}
    assert "4 files" in capsys.readouterr().out


def size_of(path):
    with Image.open(path) as image:
        return image.size


def images(folder):
    return sorted(folder.rglob("*.png"))


def test_pixels_of_a_file_are_those_of_apply(image_runs, image_data, tmp_path):
    main(["apply", str(image_runs / "vqgan"), str(image_data / "inputs" / "square.png"), "--out", str(tmp_path)])
    image = Image.open(image_data / "inputs" / "square.png")
    expected = pg.load(image_runs / "vqgan").apply(image)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "square.png")), np.asarray(expected))


def test_tokens_written_and_read_give_the_output(image_runs, image_data, tmp_path):
    vqgan = str(image_runs / "vqgan")
    assert main(["apply", vqgan, str(image_data / "inputs"), "--out", str(tmp_path / "tokens"), "--encode"]) == 0
    assert main(["apply", vqgan, str(tmp_path / "tokens"), "--out", str(tmp_path / "decoded"), "--decode"]) == 0
    assert main(["apply", vqgan, str(image_data / "inputs"), "--out", str(tmp_path / "direct")]) == 0
    for path in images(tmp_path / "direct"):
        decoded = np.asarray(Image.open(tmp_path / "decoded" / path.relative_to(tmp_path / "direct")), np.int64)
        assert np.abs(decoded - np.asarray(Image.open(path))).max() <= 1
    stored = load_file(tmp_path / "tokens" / "wide.safetensors")
    assert stored["tokens"].shape == (6, 10)
    assert stored["sizes"].tolist() == [24, 40]


LARGE = {"tokens": torch.full((2, 2), 10**6), "sizes": torch.ones(2)}


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, save({"tokens": torch.ones(2)}), save(LARGE)])
def test_damaged_tokens_are_named(image_runs, tmp_path, capsys, content):
    (tmp_path / "bad.safetensors").write_bytes(content)
    out = str(tmp_path / "out")
    assert main(["apply", str(image_runs / "vqgan"), str(tmp_path / "bad.safetensors"), "--out", out, "--decode"]) == 2
    assert "bad.safetensors" in capsys.readouterr().err


def test_stopped_command_continues_and_writes_what_an_unbroken_one_does(image_runs, image_data, tmp_path, monkeypatch):
    from paragan.runs import output_folder

    words = ["apply", str(image_runs / "superres"), str(image_data / "inputs"), "--out"]
    assert main([*words, str(tmp_path / "whole")]) == 0
    write, calls = output_folder.write_bytes, []

    def stopping(target, content):
        calls.append(target)
        if len(calls) == 3:
            raise KeyboardInterrupt
        write(target, content)

    with monkeypatch.context() as patch:
        patch.setattr(output_folder, "write_bytes", stopping)
        assert main([*words, str(tmp_path / "parts")]) != 0
    assert len(images(tmp_path / "parts")) == 2
    assert main([*words, str(tmp_path / "parts")]) == 0
    whole, parts = ({p.name: p.read_bytes() for p in (tmp_path / name).rglob("*.png")} for name in ("whole", "parts"))
    assert whole == parts


def test_damaged_inputs_are_named_and_left_out(image_runs, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    noise(20, 20).save(tmp_path / "in" / "good.png")
    whole = (tmp_path / "in" / "good.png").read_bytes()
    (tmp_path / "in" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "in" / "text.png").write_text("no image")
    assert main(["apply", str(image_runs / "superres"), str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 2
    assert [path.name for path in images(tmp_path / "out")] == ["good.png"]
    message = capsys.readouterr().err
    assert "cut.png" in message
    assert "text.png" in message
    assert "data." not in message and "data check" not in message  # no run trains here
    assert message.count("correct, convert or replace the file") == 2


def test_inputs_that_differ_in_their_endings_keep_them(image_runs, tmp_path):
    (tmp_path / "in").mkdir()
    for ending in ("png", "jpg"):
        noise(8, 8).save(tmp_path / "in" / f"same.{ending}")
    assert main(["apply", str(image_runs / "superres"), str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 0
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
def test_what_does_not_apply_is_one_line(image_runs, image_data, tmp_path, capsys, name, words, expected):
    if name == "digits":
        pg.train("digits", {"train.kimg": 0.016, "train.batch": 8, "evaluation.features": None}, out=image_runs / name)
        capsys.readouterr()
    assert (
        main(["apply", str(image_runs / name), str(image_data / "inputs"), "--out", str(tmp_path / "out"), *words]) == 2
    )
    message = capsys.readouterr().err.strip()
    assert expected in message
    assert "\n" not in message
    assert not images(tmp_path)


def test_folder_of_other_results_is_refused_and_left_alone(image_runs, image_data, tmp_path, capsys):
    out = tmp_path / "out"
    words = [str(image_data / "inputs"), "--out", str(out)]
    assert main(["apply", str(image_runs / "superres"), *words]) == 0
    before = {path: path.read_bytes() for path in images(out)}
    assert main(["apply", str(image_runs / "vqgan"), *words]) == 2
    assert main(["apply", str(image_runs / "superres"), *words, "--tile", "256"]) == 2
    (out / "applied.json").write_text(json.dumps({}))
    assert main(["apply", str(image_runs / "superres"), *words]) == 2
    (out / "applied.json").unlink()
    assert main(["apply", str(image_runs / "superres"), *words]) == 2
    assert {path: path.read_bytes() for path in images(out)} == before
    assert (
        main(
            [
                "apply",
                str(image_runs / "superres"),
                str(image_data / "inputs"),
                "--out",
                str(image_data / "inputs" / "new"),
            ]
        )
        == 2
    )
    assert not (image_data / "inputs" / "new").exists()


def test_archive_that_leads_out_of_its_folder_is_written_into_the_output(image_runs, tmp_path):
    import zipfile

    noise(8, 8).save(tmp_path / "image.png")
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.write(tmp_path / "image.png", "../../escaped.png")
    out = tmp_path / "deep" / "er" / "out"
    assert main(["apply", str(image_runs / "superres"), str(tmp_path / "bad.zip"), "--out", str(out)]) == 0
    assert set(tmp_path.rglob("*.png")) == {tmp_path / "image.png", out / "escaped.png"}


def test_tiles_of_a_file_equal_the_whole_away_from_seams(image_runs, tmp_path):
    noise(96, 80).save(tmp_path / "photo.png")
    for folder, words in {"whole": [], "tiles": ["--tile", "48", "--overlap", "32"]}.items():
        command = ["apply", str(image_runs / "superres"), str(tmp_path / "photo.png"), "--out", str(tmp_path / folder)]
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
    settings = {"train.batch": 4, "train.kimg": 0.008, "evaluation.features": None}
    pg.Trainer(Doubling(), Scalar(), data, settings=settings, out=tmp_path / "run").run()
    sampler = pg.load(Path(tmp_path / "run"), generator=Doubling)
    x = torch.rand(1, 3, 20, 13) * 2 - 1
    y = sampler.apply(x)
    with torch.no_grad():
        assert y.shape == (1, 3, 40, 26)
        torch.testing.assert_close(y[..., :30, :20], sampler.net(x)[..., :30, :20], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", RUNS)
def test_print_of_a_run_is_one_screen(image_runs, name):
    text = str(pg.load(image_runs / name))
    assert len(text.splitlines()) == 6
    rows = {line[:10].strip(): line[10:] for line in text.splitlines()}
    assert (
        f"{sum(weight.numel() for weight in pg.load(image_runs / name).net.parameters()):,} weights"
        in rows["generator"]
    )
    assert "32x" in rows["output"]
    assert rows["call"].startswith("generator.")
