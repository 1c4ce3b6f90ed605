"""The data set `audio`: values of segments against soundfile and soxr, splits, crops, damaged and hostile files."""

import struct
import zipfile

import numpy as np
import pytest
import torch

from paragan.core import registry
from paragan.core.errors import DataError
from paragan.core.source import Source
from paragan.datasets import audio, speech
from paragan.datasets.base.open_images import open_encoded_images
from paragan.layers.log_mel import LogMel

sf = pytest.importorskip("soundfile")
soxr = pytest.importorskip("soxr")

RATE = 16_000


def noise(seconds=1.0, channels=2, seed=0, rate=RATE):
    samples = np.random.default_rng(seed).standard_normal((int(seconds * rate), channels))
    return (0.2 * samples).clip(-0.9, 0.9).astype(np.float32)


@pytest.fixture
def folder(tmp_path):
    """Ten files of 0.5 s in nested folders, of two rates, one of them short, and files that are no audio."""
    for number in range(10):
        path = tmp_path / "set" / f"speaker{number % 3}" / f"{number}.{('wav', 'flac')[number % 2]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        rate = (RATE, 24_000)[number % 2]
        sf.write(path, noise(0.02 if number == 4 else 0.5, seed=number, rate=rate), rate)
    (tmp_path / "set" / "speaker1" / "text.lab").write_text("x")
    (tmp_path / "set" / "a.jpg").write_text("x")
    return tmp_path / "set"


def options(path, **settings):
    settings = {"sample_rate": 8000, "segment": 1024, "path": str(path), **settings}
    return registry.options("datasets", "audio")(**settings)


def open_split(path, split="train", **settings):
    return audio.source(options(path, **settings), split)


def refused(path, **settings):
    with pytest.raises(DataError) as caught:
        [open_split(path, split, **settings) for split in ("train", "held_out")]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_segment_of_training_is_a_crop_of_its_file_and_follows_seed_and_place_alone(folder):
    train = open_split(folder)
    rows = np.array([0, 3, 0])
    first = train.fetch(rows, [4, 5, 6], 1)
    assert torch.equal(first["audio"][1:], train.fetch(rows[1:], [5, 6], 1)["audio"])
    assert not torch.equal(first["audio"][0], first["audio"][2])
    assert not torch.equal(first["audio"], train.fetch(rows, [4, 5, 6], 2)["audio"])
    whole, rate = sf.read(train.where(3), dtype="float32")
    expected = soxr.resample(whole.mean(1), rate, 8000) if rate != 8000 else whole.mean(1)
    windows = np.lib.stride_tricks.sliding_window_view(expected, 1024)
    assert np.abs(windows - first["audio"][1, 0].numpy()).max(1).min() < 1e-6
    torch.testing.assert_close(first["mel"], LogMel(8000, 256, 64, 40)(first["audio"]))


def test_a_held_out_segment_is_the_middle_whatever_the_place(folder):
    held_out = open_split(folder, "held_out", held_out=0.4)
    found = held_out.fetch([0], [7], 3)["audio"]
    assert torch.equal(found, held_out.fetch([0])["audio"])
    whole, rate = sf.read(held_out.where(0), dtype="float32")
    expected = soxr.resample(whole.mean(1), rate, 8000)
    start = (len(expected) - 1024) // 2
    np.testing.assert_allclose(found[0, 0], expected[start : start + 1024], atol=1e-6)


def test_what_is_read_and_what_is_not_is_said(folder):
    text = open_split(folder, held_out=0.2).reading
    for part in ("16000 Hz", "24000 Hz", "2-channel", "8000 Hz", "1 .lab", "1 .jpg", "0.1 min"):
        assert part in text
    counts = [len(open_split(folder, split, held_out=0.2)) for split in ("train", "held_out")]
    assert sum(counts) == 10 and min(counts) > 0
    assert f"{counts[0]} audio files" in text and f"holds out {counts[1]}" in text


def test_short_files_are_padded_with_silence_and_counted(folder):
    sources = [open_split(folder, split) for split in ("train", "held_out")]
    source = next(source for source in sources if any(source.where(r).endswith("4.wav") for r in range(len(source))))
    short = next(row for row in range(len(source)) if source.where(row).endswith("4.wav"))
    assert ("1 shorter" in sources[0].reading) == (source is sources[0])
    found = source.fetch([short], [3], 0)["audio"][0, 0]
    whole = soxr.resample(sf.read(source.where(short), dtype="float32")[0].mean(1), RATE, 8000)
    np.testing.assert_allclose(found[: len(whole)], whole, atol=1e-6)
    assert not found[len(whole) :].any()


def test_stereo_is_kept_mono_fills_both_and_more_is_refused(tmp_path):
    for number in range(4):
        sf.write(tmp_path / f"{number}.wav", noise(0.2, 1 + number % 2, number), 8000)
    source = open_split(tmp_path, channels=2, held_out=0.01)
    for row in range(3):
        left, right = source.fetch([row], [0], 0)["audio"][0]
        assert torch.equal(left, right) == (sf.info(source.where(row)).channels == 1)
    assert source.tensors["mel"].shape == source.fetch([0])["mel"].shape[1:] == (80, 16)
    sf.write(tmp_path / "6.wav", noise(0.2, 6), 8000)
    assert "6 channels" in refused(tmp_path, channels=2)
    assert len(open_split(tmp_path)) == 4


@pytest.mark.parametrize("names", [("train", "val"), ("train", "test"), ("train", "valid")])
def test_folders_of_splits_are_kept(tmp_path, names):
    for number, name in enumerate((*names, names[0])):
        (tmp_path / name / "x").mkdir(parents=True, exist_ok=True)
        sf.write(tmp_path / name / "x" / f"{number}.wav", noise(0.2), 8000)
    train, held_out = (open_split(tmp_path, split) for split in ("train", "held_out"))
    assert [f"/{names[0]}/" in train.where(row) for row in range(len(train))] == [True, True]
    assert [f"/{names[1]}/" in held_out.where(row) for row in range(len(held_out))] == [True]


def test_a_zip_file_has_the_segments_of_its_folder(folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        for path in sorted(folder.rglob("*.*")):
            archive.write(path, path.relative_to(folder))
    both = [open_split(path) for path in (folder, tmp_path / "set.zip")]
    rows = np.arange(len(both[0]))
    assert torch.equal(*(source.fetch(rows, rows, 0)["audio"] for source in both))


def test_three_hours_are_not_read_for_a_segment(tmp_path, monkeypatch):
    header = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 0, b"WAVE", b"fmt ", 16, 1, 2, 44_100, 176_400, 4, 16, b"data", 0
    )
    for number in range(2):
        with open(tmp_path / f"{number}.wav", "wb") as file:
            size = 3 * 3600 * 176_400
            file.write(header[:-4] + struct.pack("<I", size))
            file.truncate(44 + size)  # sparse
    counts = []
    read = sf.SoundFile.read
    monkeypatch.setattr(
        sf.SoundFile, "read", lambda file, count, **rest: counts.append(count) or read(file, count, **rest)
    )
    source = open_split(tmp_path)
    assert source.fetch([0], [9], 0)["audio"].shape == (1, 1, 1024)
    assert max(counts) < 40_000 and "3.0 h" in source.reading


def spoiled(path, kind):
    """Write a damaged file next to intact ones."""
    sf.write(path, noise(), RATE, format={"cut flac": "FLAC", "cut mp3": "MP3"}.get(kind, "WAV"))
    content = path.read_bytes()
    if kind == "NaN":
        samples = noise()
        samples[8000:] = np.nan
        sf.write(path, samples, RATE, subtype="FLOAT", format="WAV")
    elif kind == "integers as floats":
        sf.write(path, noise() * 32_768, RATE, subtype="FLOAT", format="WAV")
    else:
        contents = {
            "zero length": content[:44],
            "empty": b"",
            "html": b"<html></html>",
            "cut flac": content[: len(content) // 2],
            "cut mp3": content[: len(content) // 2],
        }
        path.write_bytes(contents[kind])


KINDS = ["NaN", "integers as floats", "zero length", "empty", "html", "cut flac", "cut mp3"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_named_or_skipped(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    for number in range(4):
        sf.write(tmp_path / f"{number}.wav", noise(0.2, seed=number), 8000)
    spoiled(tmp_path / "bad.wav", kind)
    settings = {"segment": 7936, "sample_rate": 16_000}  # half of the file
    messages = []
    for split in ("train", "held_out"):
        try:
            source = open_split(tmp_path, split, **settings)
            for place in range(4):
                source.fetch(np.arange(len(source)), np.full(len(source), place), 0)
        except DataError as error:
            messages.append(str(error))
    assert len(messages) == 1 and "bad.wav" in messages[0] and "data.damaged=skip" in messages[0]
    skipping = [open_split(tmp_path, split, damaged="skip", **settings) for split in ("train", "held_out")]
    assert sum(map(len, skipping)) == 4
    assert all("bad.wav" in source.notices[0] and "1 of 5" in source.notices[0] for source in skipping)


def test_too_few_files_are_refused_with_what_is_there(tmp_path):
    sf.write(tmp_path / "a.wav", noise(), RATE)
    (tmp_path / "b.txt").write_text("x")
    message = refused(tmp_path)
    assert "1 audio files" in message and "1 .txt" in message


def test_a_folder_of_audio_is_named_where_images_are_read(folder):
    (folder / "a.jpg").unlink()
    with pytest.raises(DataError, match="vocoder"):
        open_encoded_images(str(folder))


def test_without_the_packages_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "soxr", None)
    with pytest.raises(Exception, match=r"paragan\[audio\]"):
        open_split(folder)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"segment": 1000}, "hop"),
        ({"n_fft": 2048}, "n_fft"),
        ({"n_fft": 32}, "n_fft"),
        ({"win": 300}, "win"),
        ({"fmax": 4001.0}, "fmax"),
        ({"fmin": 3000.0, "fmax": 2000.0}, "fmax"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, word):
    with pytest.raises(ValueError, match=word):
        options("x", **settings)


def test_speech_with_a_path_is_the_audio_there(folder):
    chosen = registry.options("datasets", "speech")(path=str(folder), segment=1024, channels=2, sample_rate=RATE)
    source: Source = speech.source(chosen, "train")
    assert isinstance(source, audio.AudioSegments) and source.tensors["audio"].shape == (2, 1024)
    with pytest.raises(ValueError, match="path"):
        registry.options("datasets", "speech")(sample_rate=RATE)
