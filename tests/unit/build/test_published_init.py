"""`init` and `g.init` with a file of HiFi-GAN: what was loaded, and which settings of the model it needs."""

import pytest
import torch

from paragan import build
from paragan.build.initial_weights import load_initial_weights
from paragan.config import read_recipe
from paragan.core.errors import CheckpointError
from tests.unit.checkpoint.test_published_hifigan import Vocoder, old_weight_norm

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")]  # D: 70 M weights
WORDS = ("model.flavour=v3", "model.width=8", "model.rates=[8,8]", "data.n_mels=80", "data.utterances=8", "g.ema=null")


@pytest.fixture
def file(tmp_path):
    """A file of a small V3, and the network."""
    net = Vocoder(8, (8, 8), [(3, (1, 2)), (5, (2, 6)), (7, (3, 12))], old_weight_norm, pairs=False)
    torch.save({"generator": net.state_dict()}, tmp_path / "g_02500000")
    return tmp_path / "g_02500000", net.eval()


def started(folder, *words):
    config = read_recipe("vocoder", [*WORDS, *words])
    trainer = build.trainer(config, folder, print, lambda: False)
    return trainer, *load_initial_weights(config, trainer, None, print)


@pytest.mark.parametrize("key", ["g.init", "init"])
def test_a_vocoder_starts_from_hifigan(tmp_path, file, key):
    path, net = file
    trainer, config, (origin, line) = started(tmp_path, f"{key}={path}")
    assert origin == (
        "weights of HiFi-GAN (jik876/hifi-gan) with model.name=hifigan, model.flavour=v3, model.width=8, "
        "model.n_mels=80, model.rates=(8, 8)"
    )
    assert line.startswith(f"{key} from {path}: G all 32 tensors")
    assert line.endswith("; D as initialised") == (key == "init")
    mel = torch.randn(1, 80, 5)
    torch.testing.assert_close(trainer.players["g"].net.eval()(mel), net(mel))
    assert len((config.init or config.g.init).sha256) == 64


def test_other_settings_than_those_of_the_file_are_one_line(tmp_path, file):
    with pytest.raises(CheckpointError, match=r"does not fit G.*model.width=8 \(here 16\)") as error:
        started(tmp_path, "model.width=16", f"g.init={file[0]}")
    assert "\n" not in str(error.value)
