"""On an accelerator: with `train.deterministic` a resumed run equals an undisturbed one bit for bit."""

import pytest
import torch
from safetensors.torch import load_file

from paragan.cli.main import main

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]
WORDS = ["train.deterministic=true", "model.width=16", "evaluation.features=null", "every.sample_kimg=0"]


def weights(folder, side):
    return load_file(max(folder.glob("checkpoints/*/")) / f"{side}.safetensors")


def test_resumed_run_equals_an_undisturbed_one_bit_for_bit(tmp_path):
    for name, lengths in (("whole", [6.4]), ("resumed", [3.2, 6.4])):
        for kimg in lengths:
            assert main(["train", "digits", *WORDS, f"train.kimg={kimg}", "--out", str(tmp_path / name)]) == 0
    for side in ("g", "d"):
        whole, resumed = (weights(tmp_path / name, side) for name in ("whole", "resumed"))
        assert whole.keys() == resumed.keys()
        assert all(torch.equal(value, resumed[key]) for key, value in whole.items())
