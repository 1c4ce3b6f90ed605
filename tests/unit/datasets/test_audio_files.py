"""Parts of audio files against soundfile, soxr and ffmpeg: all formats, resampling, files without a length."""

import io
import shutil
import subprocess

import numpy as np
import pytest

from paragan.datasets.base.audio_files import read_info, read_part
from tests.unit.datasets.test_audio import RATE, noise, open_split, refused

sf = pytest.importorskip("soundfile")
soxr = pytest.importorskip("soxr")

needs_ffmpeg = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")
FORMATS = {
    **{f"{kind}.wav": ("WAV", kind) for kind in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW")},
    "adpcm.wav": ("WAV", "IMA_ADPCM"),
    "wavex.wav": ("WAVEX", "PCM_16"),
    "w.w64": ("W64", "PCM_16"),
    "r.rf64": ("RF64", "PCM_16"),
    "f16.flac": ("FLAC", "PCM_16"),
    "f24.flac": ("FLAC", "PCM_24"),
    "v.ogg": ("OGG", "VORBIS"),
    "o.opus": ("OGG", "OPUS"),
    "m.mp3": ("MP3", "MPEG_LAYER_III"),
    "a.aiff": ("AIFF", "PCM_16"),
    "a.au": ("AU", "FLOAT"),
    "c.caf": ("CAF", "PCM_16"),
    "v.voc": ("VOC", "PCM_16"),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("rate", [RATE, 8000, 22_050])
def test_parts_equal_those_of_the_whole_file_by_soundfile_and_soxr(tmp_path, name, rate):
    container, subtype = FORMATS[name]
    sf.write(tmp_path / name, noise(), RATE, format=container, subtype=subtype)
    whole, _ = sf.read(tmp_path / name, dtype="float32", always_2d=True)
    path = bytes(tmp_path / name)
    info = read_info(path, name)
    assert (info.num_samples, info.sample_rate, info.channels, info.by_ffmpeg) == (len(whole), RATE, 2, False)
    expected = soxr.resample(whole, RATE, rate) if rate != RATE else whole
    length = info.length_at(rate)
    for start in (0, 1, 777, 3001, length - 500, length - 3):
        for file in (path, io.BytesIO((tmp_path / name).read_bytes())):
            found = read_part(file, info, name, start=start, count=500, sample_rate=rate, channels=2)
            np.testing.assert_allclose(found.T, expected[start : start + 500], atol=2e-6)
    mono = read_part(path, info, name, start=9, count=500, sample_rate=rate, channels=1)
    np.testing.assert_allclose(mono[0], expected[9:509].mean(1), atol=2e-6)


@pytest.mark.parametrize(
    ("before", "after"), [(44_100, 8000), (44_101, 8000), (192_000, 8000), (8000, 48_000), (11_025, 22_050)]
)
def test_resampling_in_parts_equals_resampling_at_once(tmp_path, before, after):
    sf.write(tmp_path / "a.wav", noise(1.0, 1, rate=before), before, subtype="FLOAT")
    whole = soxr.resample(sf.read(tmp_path / "a.wav", dtype="float32")[0], before, after)
    path = bytes(tmp_path / "a.wav")
    info = read_info(path, "a")
    parts = [
        read_part(path, info, "a", start=start, count=613, sample_rate=after, channels=1)[0]
        for start in range(0, info.length_at(after), 613)
    ]
    np.testing.assert_allclose(np.concatenate(parts), whole[: info.length_at(after)], atol=1e-6)


@pytest.mark.parametrize(("ending", "rate"), [("mp3", 48_000), ("mp3", 16_000), ("ogg", 44_100), ("ogg", 22_050)])
def test_a_part_far_into_a_lossy_file_is_that_of_the_whole(tmp_path, ending, rate):
    seconds = np.arange(3 * rate) / rate
    chirp = 0.3 * np.sin(2 * np.pi * 220 * seconds * (1 + seconds))
    sf.write(tmp_path / f"a.{ending}", np.stack([chirp, -chirp], 1), rate)
    whole, _ = sf.read(tmp_path / f"a.{ending}", dtype="float32", always_2d=True)
    path = bytes(tmp_path / f"a.{ending}")
    info = read_info(path, "a")
    for start in range(0, len(whole), len(whole) // 9):
        part = read_part(path, info, "a", start=start, count=900, sample_rate=rate, channels=2)
        np.testing.assert_allclose(part.T, whole[start : start + 900], atol=1e-6)


def test_a_wav_that_claims_four_gigabytes_is_as_long_as_it_is(tmp_path):
    for number in range(2):
        sf.write(tmp_path / f"{number}.wav", noise(), RATE)
        content = bytearray((tmp_path / f"{number}.wav").read_bytes())
        content[4:8] = content[40:44] = b"\xff\xff\xff\xff"
        (tmp_path / f"{number}.wav").write_bytes(content)
    assert read_info(bytes(tmp_path / "0.wav"), "0").num_samples == RATE
    source = open_split(tmp_path, sample_rate=RATE, segment=16_384, channels=2)
    np.testing.assert_array_equal(
        source.fetch([0])["audio"][0, :, :RATE].T, sf.read(source.where(0), dtype="float32")[0]
    )


@needs_ffmpeg
@pytest.mark.parametrize("ending", ["m4a", "mp3", "flac", "wma", "mka", "ac3"])  # the last three: seeks miss
def test_what_libsndfile_cannot_read_is_read_by_ffmpeg(tmp_path, ending):
    sf.write(tmp_path / "a.wav", noise(2.0, rate=44_100), 44_100)
    of_endings = {"m4a": ["-c:a", "alac"], "mp3": ["-q:a", "4", "-write_xing", "0"], "flac": ["-f", "flac"]}
    arguments = of_endings.get(ending, [])
    piped = ["-"] if ending == "flac" else [str(tmp_path / f"b.{ending}")]
    run = ["ffmpeg", "-v", "error", "-nostdin", "-i", str(tmp_path / "a.wav"), *arguments, *piped]
    output = subprocess.run(run, capture_output=True, check=True, timeout=60).stdout
    path = tmp_path / f"b.{ending}"
    if output:
        path.write_bytes(output)
    decode = ["ffmpeg", "-v", "error", "-nostdin", "-i", str(path), "-f", "f32le", "-"]
    decoded = subprocess.run(decode, capture_output=True, check=True, timeout=60).stdout
    whole = np.frombuffer(decoded, "<f4").reshape(-1, 2)
    info = read_info(bytes(path), "b")
    assert (info.num_samples, info.sample_rate, info.channels, info.by_ffmpeg) == (len(whole), 44_100, 2, True)
    for start in (0, 30_001, len(whole) - 900):
        part = read_part(bytes(path), info, "b", start=start, count=900, sample_rate=44_100, channels=2)
        np.testing.assert_allclose(part.T, whole[start : start + 900], atol=1e-6)


def test_a_file_for_ffmpeg_says_so_without_it(tmp_path, monkeypatch):
    for name in ("a.m4a", "b.m4a"):
        (tmp_path / name).write_bytes(b"    ftypM4A " + bytes(500))
    monkeypatch.setenv("PATH", str(tmp_path))
    message = refused(tmp_path)
    assert "install ffmpeg" in message and ".m4a" in message


@needs_ffmpeg
def test_a_playlist_does_not_make_ffmpeg_read_other_files(tmp_path):
    sf.write(tmp_path / "secret.wav", noise(), RATE)
    for name in ("a.ogg", "b.ogg"):
        (tmp_path / name).write_text(f"#EXTM3U\n#EXTINF:1,\n{tmp_path}/secret.wav\n#EXT-X-ENDLIST\n")
    (tmp_path / "secret.wav").rename(tmp_path / "secret.dat")
    assert ".ogg" in refused(tmp_path)
