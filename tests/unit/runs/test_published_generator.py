"""`pg.load(FILE)` and the verbs on a checkpoint of a published project: what its network computes, or one line."""

import tracemalloc

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import paragan as pg
from paragan.checkpoint.layouts import project_layouts
from paragan.cli.export import export
from paragan.cli.main import main
from tests.unit.checkpoint.published_files import assert_same, doubles, randomised
from tests.unit.checkpoint.studiogan_modules import CLASSES, Plain, settled
from tests.unit.checkpoint.test_published_biggan import BigG
from tests.unit.checkpoint.test_published_hifigan import Vocoder, old_weight_norm
from tests.unit.checkpoint.test_published_pix2pix import judge_of_patches, nn, translator, unet

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
__all__ = ["doubles"]


def written(net, path, wrap=lambda state: state):
    """Save a network by the ending of the file."""
    if path.suffix == ".safetensors":
        save_file({name: value.contiguous() for name, value in net.state_dict().items()}, path)
    else:
        torch.save(wrap(net.state_dict()), path)
    return path


@pytest.fixture
def one_direction(tmp_path):
    net = translator(4, 2, dropout=False).eval()
    return net["model"], written(net, tmp_path / "horse2zebra.pth")


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("ending", ["pth", "safetensors"])
@pytest.mark.parametrize("attends", [1, 2, 3])
def test_load_biggan_finds_sizes_classes_and_attention_in_the_file(tmp_path, ending, attends):
    theirs = randomised(BigG(8, 4, 6, attends=attends))
    generator = pg.load(written(theirs, tmp_path / f"G_ema.{ending}"))
    assert (generator.info.shape, generator.num_classes, generator.net.latent) == ((3, 64, 64), 5, 20)
    assert f"all {len(generator.net.state_dict())} tensors" in generator.origin
    z, y = torch.randn(2, 20), torch.tensor([4, 1])
    assert_same(generator.net(z, y), theirs(z, y))


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize(("big", "classes"), [(True, 5), (True, 0), (False, 5), (False, 0)])
def test_load_studiogan(tmp_path, big, classes):
    normed = big or not classes
    kind = {"big": big, "image": 32, "width": 8, "latent": 16, "classes": classes, "normed": normed}
    z, y = torch.randn(3, 16), torch.tensor([4, 0, 2])
    theirs = settled(randomised(Plain.generator(**kind, attends=2 if normed else 0)), z, y)
    generator = pg.load(written(theirs, tmp_path / "model=G-best.pth", lambda state: {"state_dict": state}))
    assert_same(generator.net(z, y), theirs(z, y))


@pytest.mark.usefixtures("doubles")
def test_load_pix2pix_applies_it_to_images(tmp_path):
    theirs = unet(4, [4, 8, 16, 32, 32]).eval()
    generator = pg.load(written(theirs, tmp_path / "latest_net_G.pth"))
    x = torch.rand(3, 64, 96) * 2 - 1
    torch.testing.assert_close(generator.apply(x), theirs["model"](x[None])[0], rtol=0, atol=1e-10)


def test_load_one_file_of_cyclegan_is_a_translator(one_direction):
    theirs, path = one_direction
    generator = pg.load(path)
    x = torch.rand(2, 3, 20, 36) * 2 - 1
    torch.testing.assert_close(generator.apply(x), theirs(x), rtol=0, atol=1e-6)
    assert generator.apply(Image.new("RGB", (21, 9))).size == (21, 9)
    with pytest.raises(pg.ConfigError, match="direction"):
        generator.apply(x, "b_to_a")


@pytest.mark.parametrize("settings", [{}, {"data.sample_rate": 16000, "data.fmax": 7000}])
def test_load_hifigan_turns_audio_into_mel_by_the_settings(tmp_path, settings):
    blocks = [(3, (1, 2)), (5, (2, 6)), (7, (3, 12))]
    theirs = Vocoder(16, (8, 8, 4), blocks, old_weight_norm, pairs=False).eval()
    path = written(theirs, tmp_path / "g_02500000", lambda state: {"generator": state})
    generator = pg.load(path, settings=settings)
    assert "data.sample_rate=22050" in str(generator)
    audio = torch.rand(1, 2560) - 0.5
    log_mel = generator.application().derive
    assert log_mel(audio[None]).shape == (1, 80, 10)
    torch.testing.assert_close(generator.apply(audio), theirs(log_mel(audio[None]))[0], rtol=0, atol=1e-5)
    assert generator.config.data.options.sample_rate == settings.get("data.sample_rate", 22050)


def message(path, **options):
    with pytest.raises(pg.ParaganError) as error:
        pg.load(path, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_load_other_weights_is_one_line_with_the_known_projects(tmp_path, ending):
    for net in (nn.Linear(2, 3), nn.Sequential(nn.Conv2d(3, 4, 3))):
        text = message(written(net, tmp_path / f"w.{ending}"))
        assert "weights of no known project" in text
        assert all(layout.PROJECT in text for layout in project_layouts())
    judge = judge_of_patches(3, 4, 2, nn.InstanceNorm2d)
    assert "a discriminator of pytorch-CycleGAN-and-pix2pix" in message(written(judge, tmp_path / f"d.{ending}"))


@pytest.mark.parametrize("change", [lambda s: s.pop("model.1.bias"), lambda s: s.update(extra=torch.zeros(2))])
def test_load_a_network_that_fits_in_part_names_the_other_tensors(one_direction, change):
    theirs, path = one_direction
    state = {f"model.{name}": value for name, value in theirs.state_dict().items()}
    change(state)
    torch.save(state, path)
    text = message(path)
    assert (
        "1 tensors are only in the file or only in such a generator: " in text
        and "model.width=4, model.blocks=2" in text
    )


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("shared.weight", torch.empty(10**11, 0), "no known project"),
        ("linear.bias", torch.empty(0, 2**40), "no known project"),
        ("shared.weight", torch.zeros(2**20 + 1, 1, dtype=torch.uint8), "1,048,577 classes"),
    ],
)
def test_load_allocates_nothing_by_the_sizes_of_tensors_without_elements(tmp_path, name, value, word):
    state = {key: tensor.contiguous() for key, tensor in BigG(4, 5, 8, 2).state_dict().items()}
    save_file(state | {name: value}, tmp_path / "G_ema.safetensors")
    tracemalloc.start()
    try:
        assert word in message(tmp_path / "G_ema.safetensors")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_load_options_that_do_not_belong_to_the_file_are_one_line(one_direction, tmp_path):
    _, path = one_direction
    assert "leave it out" in message(path, best=True)
    assert "leave generator out" in message(path, generator=nn.Linear(1, 1))
    assert "model.wdth" in message(path, settings={"model.wdth": 3})
    assert "only in the file or only in" in message(path, settings={"model.width": 3})
    assert "settings are for files of published projects" in message(tmp_path, settings={"model.width": 3})


def test_verbs_take_the_file(one_direction, tmp_path, capsys):
    theirs, path = one_direction
    photo = np.random.default_rng(0).integers(256, size=(9, 14, 3), dtype=np.uint8)
    Image.fromarray(photo).save(tmp_path / "a.png")
    assert main(["apply", str(path), str(tmp_path / "a.png"), "--out", str(tmp_path / "made")]) == 0
    made = np.asarray(Image.open(tmp_path / "made" / "a.png"), np.float32)
    x = torch.from_numpy(photo).permute(2, 0, 1)[None] / 127.5 - 1
    padded = torch.nn.functional.pad(x, (0, 2, 0, 3), mode="replicate")
    expected = ((theirs(padded)[0, :, :9, :14] + 1) * 127.5).permute(1, 2, 0).detach().numpy()
    assert np.abs(made - expected).max() <= 1
    capsys.readouterr()
    assert main(["export", str(path)]) == 2
    assert "has one direction of cyclegan" in capsys.readouterr().err


def test_an_exported_generator_of_a_project_is_the_same(tmp_path):
    kind = {"big": True, "image": 32, "width": 8, "latent": 16, "classes": CLASSES, "normed": True}
    path = written(Plain.generator(**kind, attends=2), tmp_path / "G.pth")
    export(path, out=tmp_path / "made")
    card = (tmp_path / "made" / "README.md").read_text()
    assert "PyTorch-StudioGAN" in card.splitlines()[0] and "trained for" not in card
    assert pg.load(tmp_path / "made").sample(2, seed=3).tensor.equal(pg.load(path).sample(2, seed=3).tensor)
