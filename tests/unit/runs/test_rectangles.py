"""A run on rectangles, from the command line to the exported file: data.size=24x40."""

import json

import pytest
import torch
from PIL import Image

import paragan as pg
from paragan.cli.main import main
from paragan.datasets import shards
from tests.prepared_shards import image_folder

pytestmark = pytest.mark.usefixtures("quick_judge")
SIZE = "data.size=24x40"
SHORT = ["train.batch=4", "train.kimg=0.008", "evaluation.num_images=20"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return str(image_folder(tmp_path_factory.mktemp("rectangles") / "photos", side=30))


def trained(folder, recipe, path, *words):
    assert main(["train", recipe, f"data.path={path}", SIZE, *SHORT, *words, "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory, photos):
    folder = tmp_path_factory.mktemp("rectangles") / "run"
    return trained(folder, "own", photos, "model.width=2", "model.latent=4", "every.score_kimg=0.008")


def test_sheet_holds_rectangles(run, tmp_path):
    assert main(["sample", str(run), "--grid=2x3", "--out", str(tmp_path / "sheet.png")]) == 0
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (3 * 42, 2 * 26)
    assert tuple(pg.load(run).sample(3, seed=0).tensor.shape) == (3, 3, 24, 40)


def test_score_of_rectangles_is_finite(run):
    scores = json.loads((run / "score.json").read_text())
    assert scores["fd[judge]"] > 0
    assert main(["eval", str(run)]) == 0


@pytest.mark.slow
def test_exported_files_make_the_rectangles_of_the_run(run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    formats = ["--format=safetensors", "--format=torch", "--format=onnx"]
    assert main(["export", str(run), *formats, "--out", str(tmp_path)]) == 0
    expected = pg.load(run).sample(3, seed=0).tensor
    loaded = pg.load(tmp_path / "generator.safetensors").sample(3, seed=0).tensor
    torch.testing.assert_close(loaded, expected, rtol=0, atol=1e-5)
    program = torch.export.load(tmp_path / "generator.pt2").module()
    onnx = onnxruntime.InferenceSession(tmp_path / "generator.onnx")
    for count in (1, 5):
        z, y = torch.randn(count, 4), torch.arange(count) % 2
        (image,) = onnx.run(None, dict(zip((i.name for i in onnx.get_inputs()), (z.numpy(), y.numpy()), strict=True)))
        assert image.shape == program(z, y).shape == (count, 3, 24, 40)


@pytest.mark.slow
def test_plan_counts_rectangles(photos, capsys):
    assert main(["plan", "own", f"data.path={photos}", SIZE, "model.width=2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["shape"] == [3, 24, 40]


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("own", ["augment.name=ada", "augment.p=1", "model.width=2"]),
        ("translate", ["model.width=2", "model.blocks=1"]),
        ("superres", ["model.width=4", "model.blocks=1", "model.d_width=2", "penalties=[l1]"]),
        (
            "own",
            ["model.name=stylegan2", "model.latent=4", "model.style=4", "model.base=64", "penalties=[path_length]"],
        ),
    ],
)
def test_recipes_train_on_rectangles(tmp_path, photos, recipe, words):
    trained(tmp_path / "run", recipe, photos, *words, "evaluation.features=null", "every.score_kimg=0")
    sheets = sorted((tmp_path / "run" / "samples").glob("*.png"))
    with Image.open(sheets[-1]) as sheet:
        assert sheet.height % (24 + 2) == 0
        assert sheet.width % (40 + 2) == 0 or sheet.width % (80 + 2) == 0  # a border of two pixels


def test_shards_of_rectangles_are_used_unchanged(tmp_path, photos):
    assert main(["data", "prepare", photos, str(tmp_path / "shards"), "--size=24x40"]) == 0
    source = shards.source(shards.Options(path=str(tmp_path / "shards")), "train")
    assert source.shape == (3, 24, 40) and not source.notices
