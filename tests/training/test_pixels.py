"""Runs on images of other channels and depths, from the file to the sheet."""

import io
import json

import numpy as np
import pytest
from PIL import Image

import paragan as pg
from tests.image_files import tiff

WORDS = {
    "data.size": 8, "model.width": 4, "model.latent": 8, "train.batch": 8, "train.kimg": 0.016, "every.sample_kimg": 1,
    "every.score_kimg": 1, "evaluation.num_images": 20,
}  # fmt: skip


@pytest.mark.usefixtures("quick_judge")
@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.random.default_rng(0).integers(0, 256, (20, 8, 10, 4)).astype(np.uint8), {"data.channels": 4}),
        (np.random.default_rng(0).integers(-1024, 3000, (20, 12, 9, 5)).astype(np.int16), {
            "data.channels": 5, "data.bits": 16, "data.range": [-1024, 3000], "data.crop": "random", "data.flip": True,
        }),
    ],
    ids=["RGBA", "five bands of 16 bits"],
)  # fmt: skip
def test_a_run_on_other_channels_is_trained_scored_and_shown(tmp_path, capsys, values, words):
    (tmp_path / "data").mkdir()
    for number, image in enumerate(values):
        (tmp_path / "data" / f"{number}.tif").write_bytes(tiff(image, alpha=image.shape[2] == 4))
    pg.train("own", {**WORDS, **words, "data.path": str(tmp_path / "data")}, out=tmp_path / "run")
    kind = {4: "RGBA", 5: "16-bit 5-channel"}[words["data.channels"]]
    assert f"{kind} images" in capsys.readouterr().out
    records = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert any("fd[judge]" in record for record in records)
    sheets = [path.read_bytes() for path in (tmp_path / "run" / "samples").glob("*.png")]
    assert {Image.open(io.BytesIO(sheet)).mode for sheet in sheets} == {"RGB"}
    assert pg.load(tmp_path / "run").sample(2).tensor.shape == (2, words["data.channels"], 8, 8)
