"""An export folder: code of the card that runs without paragan, and no file of other weights."""

import hashlib
import shutil
import warnings
from pathlib import Path

import pytest
import torch

import paragan as pg
from paragan.cli.main import main
from paragan.core.errors import CheckpointError, ConfigError
from paragan.export import formats
from paragan.export.bundle import Bundle
from tests.tiny_run import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "run"
    train(folder, "g.ema.half_life_kimg=0.1")
    return folder


@pytest.fixture(scope="module")
def loaded(run):
    return pg.load(run)


@pytest.fixture(scope="module")
def program(run, tmp_path_factory):
    """An export of `run` with its program, which takes a second to trace."""
    folder = tmp_path_factory.mktemp("program") / "export"
    assert main(["export", str(run), "--format", "torch", "--out", str(folder)]) == 0
    return folder


def writes_no_program(network, path):
    """In place of `formats.torch_program`, where nobody loads what it writes: tracing takes a second."""
    path.write_bytes(b"a program")
    return 0.0


@pytest.fixture
def exported(program, tmp_path):
    """A copy of it, to be exported into."""
    return shutil.copytree(program, tmp_path / "export")


def run_block(card: str, title: str) -> dict:
    """What the first code block below a line of the card defines."""
    block = Path(card).read_text().partition(title)[2].split("```python\n")[1].split("```")[0]
    defined: dict = {}
    with warnings.catch_warnings(action="ignore"):
        exec(block, defined)  # noqa: S102 our own card
    return defined


def test_export_card_loads_the_program_in_plain_torch(exported, monkeypatch):
    monkeypatch.chdir(exported)
    assert run_block("README.md", "With PyTorch alone")["images"].shape == (4, 1, 8, 8)
    assert "paragan" not in Path("README.md").read_text().partition("With PyTorch alone")[2].split("```")[1]


@pytest.fixture(scope="module")
def later(run, tmp_path_factory):
    """A copy of the run with other weights of a later step."""
    folder = shutil.copytree(run, tmp_path_factory.mktemp("later") / "run")
    train(folder, "train.kimg=0.128", "seed=1")
    return folder


def test_an_export_of_other_weights_leaves_no_file_of_the_former(later, exporting, exported):
    lines = exporting(later, "--out", exported)
    assert lines[0] == f"removed {exported / 'generator.pt2'}, which an export of other weights had left"
    assert sorted(path.name for path in exported.iterdir()) == ["README.md", "generator.safetensors", "samples.png"]
    assert "generator.pt2" not in (exported / "README.md").read_text()


def test_a_program_that_no_card_knows_is_removed(run, exporting, exported):
    (exported / "README.md").unlink()
    exporting(run, "--out", exported)
    assert not (exported / "generator.pt2").exists()


def users_files(folder, *names):
    """Files in a folder that no export has written; returns their contents by name."""
    for name in names:
        (folder / name).write_text("![](samples.png) of the user\n")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("README.md", []),
        ("README.md", ["generator.safetensors"]),  # as after `--out generator.safetensors` in a project
        ("generator.py", []),
        ("samples.png", ["mine.safetensors"]),
    ],
)
def test_a_file_that_no_export_wrote_is_neither_replaced_nor_removed(loaded, tmp_path, name, others):
    before = users_files(tmp_path, name, *others)
    with pytest.raises(ConfigError, match=f"^{tmp_path} has {name}, .*; pass another folder as --out$"):
        Bundle(sampler=loaded, tree={}, score={}).write(tmp_path, [])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(("player", "name"), [("g", "README.md"), ("d", "discriminator.py")])
def test_a_folder_with_files_of_the_user_is_refused_before_anything_is_traced(run, tmp_path, capfd, player, name):
    before = users_files(tmp_path, name)
    assert main(["export", str(run), "--player", player, "--format", "torch", "--out", str(tmp_path)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"{tmp_path} has {name}," in line
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("player", ["g", "d"])
def test_an_export_is_written_anew_with_and_without_its_card(run, exporting, tmp_path, player):
    exporting(run, "--player", player, "--out", tmp_path)
    card = tmp_path / "README.md"
    card.write_text("\n".join(line for line in card.read_text().splitlines() if ".safetensors | 4 |" not in line))
    exporting(run, "--player", player, "--out", tmp_path)
    assert ".safetensors | 4 |" in card.read_text()
    card.unlink()
    exporting(run, "--player", player, "--out", tmp_path)
    assert ".safetensors | 4 |" in card.read_text()


def test_a_second_format_of_the_same_weights_joins_the_first(run, exporting, exported):
    before = (exported / "generator.pt2").read_bytes()
    exporting(run, "--out", exported)
    assert (exported / "generator.pt2").read_bytes() == before
    card = (exported / "README.md").read_text()
    for name in ("generator.safetensors", "generator.pt2", "samples.png"):
        digest = hashlib.sha256((exported / name).read_bytes()).hexdigest()
        assert f"| {name} | 4 | {digest} |" in card


@pytest.mark.parametrize(
    ("name", "card"),
    [("generator.pt2", True), ("generator.safetensors", True), ("mine.safetensors", True), ("generator.pt2", False)],
)
def test_a_single_file_of_other_weights_does_not_join_an_export(later, exported, capfd, name, card):
    if not card:
        (exported / "README.md").unlink()
    before = {path.name: path.read_bytes() for path in exported.iterdir()}
    assert main(["export", str(later), "--out", str(exported / name)]) == 2
    assert f"{exported} holds an export of other weights" in capfd.readouterr().err
    assert {path.name: path.read_bytes() for path in exported.iterdir()} == before


def test_a_single_file_of_the_same_weights_joins_the_card(run, exporting, tmp_path):
    exporting(run, "--out", tmp_path)
    assert "generator.pt2" not in (tmp_path / "README.md").read_text()
    exporting(run, "--out", tmp_path / "generator.pt2")
    card = (tmp_path / "README.md").read_text()
    for name in ("generator.safetensors", "generator.pt2", "samples.png"):
        digest = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        assert f"| {name} | 4 | {digest} |" in card
    assert card.count("<!-- weights ") == 1
    before = card
    exporting(run, "--out", tmp_path / "mine.safetensors")
    assert (tmp_path / "README.md").read_text() == before


@pytest.mark.parametrize("text", [None, "# My project\n"])
def test_a_single_file_joins_a_folder_of_other_things(run, exporting, tmp_path, text):
    if text is not None:
        (tmp_path / "README.md").write_text(text)
    exporting(run, "--out", tmp_path / "generator.safetensors")
    assert exporting(run, "--out", tmp_path / "mine.safetensors") == [str(tmp_path / "mine.safetensors")]
    assert (tmp_path / "README.md").exists() == (text is not None)
    assert text is None or (tmp_path / "README.md").read_text() == text


@pytest.mark.parametrize("first", ["g", "d"])
@pytest.mark.parametrize("words", [[], ["--format", "torch"]])
def test_the_folder_of_the_other_player_is_refused_before_anything_is_traced(
    run, exporting, tmp_path, capfd, first, words
):
    exporting(run, "--player", first, "--out", tmp_path)
    second = "gd".replace(first, "")
    assert main(["export", str(run), "--player", second, *words, "--out", str(tmp_path)]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"has an exported {'generator' if first == 'g' else 'discriminator'}" in line


def test_a_single_file_does_not_join_the_export_of_a_discriminator(run, exporting, tmp_path, capfd):
    exporting(run, "--player", "d", "--out", tmp_path)
    assert main(["export", str(run), "--out", str(tmp_path / "generator.pt2")]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "has an exported discriminator" in line


def test_export_onnx_model_equals_network(run, exporting, tmp_path, monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    for name in ("onnx", "onnxscript"):
        pytest.importorskip(name)
    lines = exporting(run, "--format", "onnx", "--out", tmp_path)
    assert "generator.onnx  (differs from the network by at most" in lines[1]
    session = onnxruntime.InferenceSession(tmp_path / "generator.onnx")
    images, z = pg.load(run).sample(7, seed=5), pg.load(run).latents(7, seed=5)
    (found,) = session.run(None, {"z": z.numpy(), "labels": torch.tensor(images.labels).numpy()})
    assert torch.allclose(torch.from_numpy(found), images.tensor, atol=1e-4)
    monkeypatch.chdir(tmp_path)
    images = run_block("README.md", "With ONNX Runtime")["images"]
    assert images.shape == (4, 1, 8, 8)


@pytest.mark.parametrize("replaced", ["generator.safetensors", "generator.pt2"])
def test_a_program_does_not_stay_beside_weights_that_are_not_its_own(
    run, later, exporting, exported, tmp_path, replaced
):
    exporting(later, "--out", tmp_path / "other" / replaced)
    shutil.copy(tmp_path / "other" / replaced, exported)
    lines = exporting(later if replaced == "generator.safetensors" else run, "--out", exported)
    assert lines[0].startswith(f"removed {exported / 'generator.pt2'}")
    assert not (exported / "generator.pt2").exists()


def test_a_format_that_fails_replaces_nothing(later, exporting, exported, monkeypatch):
    before = {path.name: path.read_bytes() for path in exported.iterdir()}

    def fail(network, path):
        raise CheckpointError("export: this cannot be traced")

    monkeypatch.setitem(formats.WRITERS, "torch", fail)
    with pytest.raises(CheckpointError):
        exporting(later, "--format", "torch", "--out", exported)
    assert {path.name: path.read_bytes() for path in exported.iterdir()} == before


def test_a_second_format_that_fails_leaves_no_program_of_other_weights(run, later, exporting, exported, monkeypatch):
    weights = (exported / "generator.safetensors").read_bytes()

    def fail(network, path):
        raise CheckpointError("export: this cannot be traced")

    monkeypatch.setitem(formats.WRITERS, "torch", writes_no_program)
    monkeypatch.setitem(formats.WRITERS, "python", fail)
    with pytest.raises(CheckpointError):
        exporting(later, "--format", "torch", "--format", "python", "--out", exported)
    assert not (exported / "generator.pt2").exists()
    assert (exported / "generator.safetensors").read_bytes() == weights
    exporting(run, "--format", "torch", "--out", exported)
    with pytest.raises(CheckpointError):  # of the same weights: the first program belongs to them
        exporting(run, "--format", "torch", "--format", "python", "--out", exported)
    assert (exported / "generator.pt2").exists()


WRITES_WEIGHTS = {
    "generator": "paragan.export.bundle.Bundle._write_weights",
    "discriminator": "paragan.export.discriminator.ExportedDiscriminator._weights",
}


@pytest.mark.parametrize("player", WRITES_WEIGHTS)
def test_an_export_that_ended_before_its_card_is_repeated(run, exporting, tmp_path, monkeypatch, player):
    """As after a kill, or on a full disk: the program is there, the weights are not."""
    words = (run, "--player", player[0], "--format", "torch", "--out", tmp_path / "out")
    monkeypatch.setitem(formats.WRITERS, "torch", writes_no_program)
    with monkeypatch.context() as patch:
        patch.setattr(WRITES_WEIGHTS[player], lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            exporting(*words)
    assert (tmp_path / "out" / f"{player}.pt2").exists()
    assert "has not ended" in (tmp_path / "out" / "README.md").read_text()
    exporting(*words)
    assert (tmp_path / "out" / f"{player}.safetensors").exists()
    assert "has not ended" not in (tmp_path / "out" / "README.md").read_text()


def without_pairs(monkeypatch):
    """Exports from now on have no sheet: the held-out pairs are missing."""
    monkeypatch.setattr("paragan.export.bundle.Bundle._write_sheet", lambda self, path: [])


def test_a_sheet_of_other_weights_does_not_stay(run, later, exporting, tmp_path, monkeypatch):
    exporting(run, "--out", tmp_path)
    without_pairs(monkeypatch)
    lines = exporting(later, "--out", tmp_path)
    assert lines[0].startswith(f"removed {tmp_path / 'samples.png'}")
    assert not (tmp_path / "samples.png").exists()


def test_a_sheet_of_the_same_weights_stays(run, exporting, tmp_path, monkeypatch):
    exporting(run, "--out", tmp_path)
    sheet = (tmp_path / "samples.png").read_bytes()
    without_pairs(monkeypatch)
    assert not any(line.startswith("removed") for line in exporting(run, "--out", tmp_path))
    assert (tmp_path / "samples.png").read_bytes() == sheet
    assert hashlib.sha256(sheet).hexdigest() in (tmp_path / "README.md").read_text()
