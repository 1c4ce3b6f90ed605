"""`apply` on inputs that are called, damaged or changed in any way: one input never costs another, none is stale."""

import json
import os
from fractions import Fraction

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import paragan as pg
from paragan.cli.main import main
from paragan.export.application import Application
from paragan.runs import apply_files
from tests.unit.export.image_runs import noise


def apply(run, inputs, out, *words):
    return main(["apply", str(run), str(inputs), "--out", str(out), *words])


@pytest.fixture
def superres(image_runs):
    return image_runs / "superres"


def results(out):
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*.png")) if path.is_file()}


def folder_of(folder, *names):
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        noise(8, 8, number).save(folder / name, "PNG")
    return folder


@pytest.mark.parametrize(
    "names",
    [
        ("a.png", "a.jpg", "a.png.png"),
        ("b.jpg", "b.png/x.png", "z.png"),
        ("m" * 251 + ".jpg", "m" * 251 + ".png", "z.png"),
        ("画" * 83 + ".png", "z.png"),
    ],
)
def test_each_input_has_a_result_whatever_it_is_called(superres, tmp_path, names):
    inputs = folder_of(tmp_path / "in", *names)
    assert apply(superres, inputs, tmp_path / "out") == 0
    written = results(tmp_path / "out")
    assert len(set(written.values())) == len(names)
    assert apply(superres, inputs, tmp_path / "out") == 0
    assert results(tmp_path / "out") == written


def stopped_by_memory(*_arguments, **_options):
    raise MemoryError("Unable to allocate 512. GiB for an array")


def stopped_by_torch(*_arguments, **_options):
    raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried …")


@pytest.mark.parametrize("failure", [stopped_by_memory, stopped_by_torch])
@pytest.mark.parametrize("place", ["_read_input", "_to_file"])
def test_input_that_does_not_fit_in_memory_is_named_and_the_others_are_done(
    superres, tmp_path, capsys, monkeypatch, failure, place
):
    inputs = folder_of(tmp_path / "in", "a.png", "large.png", "z.png")
    real, calls = getattr(apply_files, place), []

    def failing(*arguments):
        calls.append(arguments)
        return failure() if len(calls) == 2 else real(*arguments)

    monkeypatch.setattr(apply_files, place, failing)
    assert apply(superres, inputs, tmp_path / "out") == 2
    assert "large.png" in capsys.readouterr().err
    assert set(results(tmp_path / "out")) == {"a.png", "z.png"}


def test_result_whose_name_is_a_folder_in_the_output_costs_no_other(superres, tmp_path, capsys):
    inputs = folder_of(tmp_path / "in", "a.png", "b.png", "z.png")
    apply(superres, folder_of(tmp_path / "first", "a.png"), tmp_path / "out")
    (tmp_path / "out" / "b.png" / "mine").mkdir(parents=True)
    assert apply(superres, inputs, tmp_path / "out") == 2
    assert "b.png" in capsys.readouterr().err
    assert set(results(tmp_path / "out")) == {"a.png", "z.png"}


@pytest.mark.parametrize("change", ["other folder", "edited", "other size"])
def test_result_of_an_input_that_changed_is_made_again(superres, tmp_path, capsys, change):
    inputs = folder_of(tmp_path / "in", "1.png", "2.png")
    assert apply(superres, inputs, tmp_path / "out") == 0
    before = results(tmp_path / "out")
    if change == "other folder":
        inputs = tmp_path / "other"
        inputs.mkdir()
    noise(8 if change == "edited" else 12, 8, seed=9).save(inputs / "1.png")
    os.utime(inputs / "1.png", ns=(0, 12345))  # older than its result
    capsys.readouterr()
    assert apply(superres, inputs, tmp_path / "out") == 0
    assert "1 file written" in capsys.readouterr().out
    assert apply(superres, inputs, tmp_path / "new") == 0
    assert results(tmp_path / "out")["1.png"] == results(tmp_path / "new")["1.png"] != before["1.png"]
    assert results(tmp_path / "out")["2.png"] == before["2.png"]


@pytest.mark.parametrize("rest", ["", '\n{"output": "1.png", "inp', "\n[]\n7"])
def test_record_of_inputs_that_a_kill_cut_short_is_continued(superres, tmp_path, capsys, rest):
    inputs = folder_of(tmp_path / "in", "1.png", "2.png")
    assert apply(superres, inputs, tmp_path / "out") == 0
    record = tmp_path / "out" / "inputs.jsonl"
    lines = record.read_text().split("\n")
    record.write_text("\n".join(lines[:2]) + rest)
    for expected in ("1 file written, 1 existed already", "0 files written, 2 existed already"):
        capsys.readouterr()
        assert apply(superres, inputs, tmp_path / "out") == 0
        assert expected in capsys.readouterr().out


@pytest.mark.parametrize("name", ["applied.json", "sampled.json"])
def test_command_that_was_killed_while_it_wrote_its_record_is_repeated(superres, image_runs, tmp_path, name):
    out = tmp_path / "out"
    out.mkdir()
    (out / f".{name}.0a1b2c3d.tmp").write_text('{"weig')
    if name == "applied.json":
        assert apply(superres, folder_of(tmp_path / "in", "1.png"), out) == 0
    else:
        pg.train("digits", {"train.kimg": 0.016, "train.batch": 8, "evaluation.features": None}, out=tmp_path / "run")
        assert main(["sample", str(tmp_path / "run"), "--num", "2", "--out", str(out)]) == 0
    assert sorted(path.name for path in out.glob("*.json")) == [name]
    assert not list(out.glob(".*"))


class NotFinite(torch.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((1,), value))

    def forward(self, x):
        return x * self.weight


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("kind", ["image", "audio"])
def test_output_that_is_not_finite_is_no_file(value, kind):
    net = NotFinite(value)
    application = Application(
        net=net, call=net, kind=kind, channels=1, multiple=1, minimum=1, scale=Fraction(1), audio=None
    )
    x = torch.full((1, 1, 4, 4), 0.5)
    with pytest.raises(pg.DataError, match=r"photo.*not finite"):
        apply_files._to_file(application, application.call(x), "photo")


TOKENS = torch.zeros(4, 5, dtype=torch.int64)


@pytest.mark.parametrize(
    ("tokens", "sizes", "expected"),
    [
        (TOKENS - 1, [16, 20], "codebook"),
        (TOKENS + 10**9, [16, 20], "codebook"),
        (TOKENS + 0.5, [16, 20], "float32"),
        (TOKENS > 0, [16, 20], "bool"),
        (TOKENS.to(torch.complex64), [16, 20], "complex"),
        (TOKENS, [0, 0], "sizes"),
        (TOKENS, [-3, -3], "sizes"),
        (TOKENS, [16.0, 20.0], "sizes"),
        (TOKENS, [[16, 20]], "sizes"),
        (TOKENS, [], "sizes"),
        (TOKENS, [17, 20], "16x20"),
        (TOKENS, [16], "16x20"),
        (TOKENS, [3, 16, 20], "16x20"),
        (TOKENS[:0], [16, 20], "(0, 5)"),
        (TOKENS[0], [16, 20], "fails"),
        (TOKENS[None], [16, 20], "fails"),
    ],
)
def test_tokens_of_no_file_are_named_and_the_others_are_decoded(image_runs, tmp_path, capsys, tokens, sizes, expected):
    (tmp_path / "in").mkdir()
    save_file({"tokens": TOKENS, "sizes": torch.tensor([15, 20])}, tmp_path / "in" / "good.safetensors")
    save_file({"tokens": tokens, "sizes": torch.tensor(sizes)}, tmp_path / "in" / "bad.safetensors")
    assert apply(image_runs / "vqgan", tmp_path / "in", tmp_path / "out", "--decode") == 2
    message = capsys.readouterr().err
    assert "bad.safetensors" in message
    assert expected in message
    with Image.open(tmp_path / "out" / "good.png") as image:
        assert image.size == (20, 15)
    assert len(results(tmp_path / "out")) == 1


@pytest.mark.parametrize(("codebooks", "expected"), [(1, 0), (4, 0), (5, 2), (9, 2)])
def test_tokens_of_more_codebooks_are_refused_and_of_fewer_decoded(audio_runs, tmp_path, codebooks, expected):
    pytest.importorskip("soundfile")
    tokens = torch.zeros(codebooks, 10, dtype=torch.int32)
    save_file({"tokens": tokens, "sizes": torch.tensor([600])}, tmp_path / "a.safetensors")
    assert apply(audio_runs / "codec", tmp_path / "a.safetensors", tmp_path / "out", "--decode") == expected


def test_flac_that_states_more_samples_than_memory_holds_is_named(audio_runs, tmp_path, capsys):
    soundfile = pytest.importorskip("soundfile")
    (tmp_path / "in").mkdir()
    for name in ("a", "b", "c"):
        soundfile.write(tmp_path / "in" / f"{name}.flac", np.zeros(8000), 8000)
    content = bytearray((tmp_path / "in" / "b.flac").read_bytes())
    stated = int.from_bytes(content[18:26], "big") | ((1 << 36) - 1)  # of STREAMINFO
    content[18:26] = stated.to_bytes(8, "big")
    (tmp_path / "in" / "b.flac").write_bytes(content)
    assert apply(audio_runs / "codec", tmp_path / "in", tmp_path / "out") == 2
    assert "b.flac" in capsys.readouterr().err
    assert {path.name for path in (tmp_path / "out").glob("*.wav")} == {"a.wav", "c.wav"}


def test_record_of_inputs_holds_names_that_are_no_text(superres, tmp_path):
    inputs = folder_of(tmp_path / "in", b"\xff\xfe.png".decode("utf-8", "surrogateescape"), "new\nline.png")
    for _ in range(2):
        assert apply(superres, inputs, tmp_path / "out") == 0
    lines = [json.loads(line) for line in (tmp_path / "out" / "inputs.jsonl").read_text().split("\n") if line]
    assert len(lines) == 2


def test_tokens_of_other_weights_are_refused(image_runs, image_data, tmp_path, capsys):
    picture = image_data / "inputs" / "square.png"
    tokens = tmp_path / "tokens" / "square.safetensors"
    assert apply(image_runs / "vqgan", picture, tmp_path / "tokens", "--encode") == 0
    assert apply(image_runs / "vqgan", tokens, tmp_path / "same", "--decode") == 0
    sampler = pg.load(image_runs / "vqgan")
    next(sampler.net.decoder.parameters()).data[0] += 1
    request = apply_files.ApplyRequest(tokens="decode")
    applied = apply_files.apply_to_files(sampler, tokens, tmp_path / "other", request, lambda done, total: None)
    assert "other weights" in applied.damaged[0]
    assert not applied.num_written


@pytest.mark.parametrize("other", ["pipe", "device", "folder", "no metadata"])
def test_tokens_next_to_what_is_no_file_are_decoded(image_runs, tmp_path, capsys, other):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "0.safetensors"
    tensors = {"tokens": TOKENS, "sizes": torch.tensor([15, 20])}
    save_file(tensors, tmp_path / "in" / "good.safetensors")
    match other:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case _:  # as null, which the format allows
            header, data = json.dumps({"__metadata__": None}), b""
            for name, value in tensors.items():
                place = [len(data), len(data) + value.nbytes]
                text = json.dumps({name: {"dtype": "I64", "shape": list(value.shape), "data_offsets": place}})
                header, data = f"{header[:-1]}, {text[1:]}", data + value.long().numpy().tobytes()
            path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + data)
    assert apply(image_runs / "vqgan", tmp_path / "in", tmp_path / "out", "--decode") == 2 * (other != "no metadata")
    assert "good.png" in results(tmp_path / "out")
    assert "0.safetensors" in capsys.readouterr().err or other == "no metadata"


def test_folder_of_a_call_that_wrote_nothing_is_free_for_another(superres, image_runs, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image")
    assert apply(superres, tmp_path / "bad.png", tmp_path / "out") == 2
    inputs = folder_of(tmp_path / "in", "1.png")
    assert apply(image_runs / "vqgan", inputs, tmp_path / "out") == 0
    assert apply(superres, inputs, tmp_path / "out") == 2


@pytest.mark.parametrize("words", [["--tile", "16", "--overlap", "16"], ["--tile", "8"], ["--overlap", "2000"]])
def test_overlap_that_is_no_smaller_than_the_tile_is_refused_once(image_runs, image_data, tmp_path, capsys, words):
    command = ["apply", str(image_runs / "superres"), str(image_data / "inputs"), "--out", str(tmp_path / "out")]
    assert main([*command, *words]) == 2
    assert capsys.readouterr().err.count("overlap of") == 1
    assert not (tmp_path / "out").exists()


def test_progress_within_a_large_image_is_that_of_its_tiles(image_runs, image_data, tmp_path):
    request = apply_files.ApplyRequest(tile=32, overlap=16)
    shares = []
    source = image_data / "inputs" / "square.png"
    generator = pg.load(image_runs / "superres")
    apply_files.apply_to_files(generator, source, tmp_path / "out", request, lambda done, total: shares.append(done))
    assert len(shares) == 10  # 3 x 3 tiles, and the file
    assert shares == sorted(shares) and 0 < shares[0] < 0.2 and shares[-1] == 1


@pytest.mark.parametrize(("kind", "number"), [("GIF", 3), ("PNG", 2), ("GIF", 1), ("TIFF", 2)])
def test_animation_is_named_of_which_the_first_frame_is_read(image_runs, tmp_path, capsys, kind, number):
    first, *others = (Image.new("RGB", (8, 8), (60 * k, 0, 0)) for k in range(number))
    first.save(tmp_path / f"x.{kind.lower()}", kind, save_all=True, append_images=others)
    source = str(tmp_path / f"x.{kind.lower()}")
    assert main(["apply", str(image_runs / "vqgan"), source, "--out", str(tmp_path / "out")]) == 0
    assert ("first of several frames" in capsys.readouterr().err) == (number > 1)
