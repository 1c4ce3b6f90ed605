"""The pages that lead from a folder of files to applied files: every command and block, in order, at toy size."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
from PIL import Image

from paragan.cli.main import main

DOCS = Path(__file__).resolve().parents[3] / "docs/how-to/files"
BLOCK = re.compile(r"^```(sh|py)\n(.*?)^```", re.S | re.M)
SIZES = {"1.jpg": (30, 44), "2.png": (64, 64), "deeper/3.webp": (130, 20)}  # width, height
SECONDS = {"1.wav": 0.1, "2.flac": 1.0, "deeper/3.mp3": 2.3}
SHORT = ("train.batch=2", "train.kimg=0.004", "every.save_kimg=0")
TINY = {
    "colourise-photos": ("model.width=4",),
    "upscale-photos": ("model.width=4", "model.blocks=1"),
    "audio-codec": ("model.width=4", "data.segment=1024"),
}


@dataclass(frozen=True)
class Finished:
    """A page whose commands up to `export` have run. folder: in which."""

    page: str
    folder: Path

    def blocks(self):
        """Return the blocks of the page: kind and text."""
        return BLOCK.findall((DOCS / f"{self.page}.md").read_text(encoding="utf-8"))

    def commands(self):
        """Return the words of each command of the page, without the program."""
        lines = "".join(text for kind, text in self.blocks() if kind == "sh").splitlines()
        words = [shlex.split(line, comments=True) for line in lines]
        assert all(line[0] == "paragan" for line in words)
        return [line[1:] for line in words]


def write_photos(folder, sizes, mode):
    for number, (name, size) in enumerate(sizes.items()):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC).convert(mode).save(path)


def write_recordings(folder, seconds):
    soundfile = pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    for number, (name, length) in enumerate(seconds.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, np.random.default_rng(number).uniform(-0.3, 0.3, int(length * 8000)), 8000)


def write_files(page, folder):
    """Write what a page says that its reader has."""
    if page == "audio-codec":
        write_recordings(folder / "recordings", {f"{n}.{('wav', 'flac', 'mp3')[n % 3]}": 0.3 for n in range(6)})
        write_recordings(folder / "new", SECONDS)
        return
    write_photos(folder / "photos", {f"{number}.png": (80, 72) for number in range(6)}, "RGB")
    name, mode = ("grey", "L") if page == "colourise-photos" else ("small", "RGB")
    write_photos(folder / name, SIZES, mode)


@pytest.fixture(scope="module", params=TINY)
def finished(request, tmp_path_factory):
    done = Finished(request.param, tmp_path_factory.mktemp(request.param))
    write_files(done.page, done.folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(done.folder)
        for words in done.commands():
            if words[0] != "export":
                assert main([*words, *(SHORT + TINY[done.page] if words[0] == "train" else ())]) == 0, words
    return done


def written(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {
        "applied.json",
        "inputs.jsonl",
    }


def test_page_applies_to_files_of_every_size(finished):
    if finished.page == "audio-codec":
        names = {str(Path(name).with_suffix("")) for name in SECONDS}
        assert written(finished.folder / "tokens") == {f"{name}.safetensors" for name in names}
        check_recordings(finished.folder, names)
        return
    name, factor = ("coloured", 1) if finished.page == "colourise-photos" else ("larger", 4)
    expected = {Path(path).with_suffix(".png").as_posix(): size for path, size in SIZES.items()}
    assert written(finished.folder / name) == expected.keys()
    for path, (width, height) in expected.items():
        with Image.open(finished.folder / name / path) as image:
            assert (image.mode, image.size) == ("RGB", (factor * width, factor * height))


def check_recordings(folder, names):
    import soundfile

    for name in names:
        length = soundfile.info(str(next((folder / "new").rglob(f"{Path(name).name}.*")))).frames
        tokens = safetensors.torch.load_file(folder / "tokens" / f"{name}.safetensors")["tokens"]
        assert tokens.shape == (4, -(-length // 64)) and tokens.max() < 256
        decoded, _ = soundfile.read(folder / "decoded" / f"{name}.wav")
        heard, _ = soundfile.read(folder / "heard" / f"{name}.wav")
        assert decoded.shape == heard.shape == (length,)
        assert np.abs(decoded - heard).max() <= 2 / 32767


def test_page_refuses_results_of_other_weights(finished, monkeypatch, capsys):
    """What the last row of its table says."""
    monkeypatch.chdir(finished.folder)
    train = next(words for words in finished.commands() if words[0] == "train")
    apply = next(words for words in finished.commands() if words[0] == "apply")
    run = Path(train[-1])
    assert main(["train", str(run), "train.kimg=0.006"]) == 0
    before = written(finished.folder / apply[4])
    assert main(apply) == 2
    assert apply[4] in capsys.readouterr().err and written(finished.folder / apply[4]) == before


@pytest.mark.slow
def test_exported_files_of_a_page_run_without_paragan(finished, monkeypatch):
    monkeypatch.chdir(finished.folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (export,) = [words for words in finished.commands() if words[0] == "export"]
    assert main(export) == 0
    names = {"generator.py", "generator.onnx", "generator.safetensors", "README.md"}
    assert names <= written(Path(export[1]) / "export")
    for kind, block in finished.blocks():
        if kind == "py":
            sys.modules.pop("generator", None)
            variables = {"__name__": "block"}
            exec(compile(block, finished.page, "exec"), variables)  # noqa: S102 our own page
    if finished.page == "audio-codec":
        assert variables["decoded"].shape == variables["audio"].shape
        assert len(written(finished.folder / "tokens")) == 2 * len(SECONDS)
    else:
        factor = 1 if finished.page == "colourise-photos" else 4
        *_, height, width = variables["x"].shape
        assert variables["images"].shape == (1, 3, factor * height, factor * width)
    if finished.page == "colourise-photos":
        with Image.open("grey/1.jpg") as photo, Image.open("large.png") as large:
            assert (large.mode, large.size) == ("RGB", photo.size)
            difference = np.asarray(large.convert("L")).astype(int) - np.asarray(photo)
            assert np.abs(difference).mean() < 8, "the detail is that of the photo"
