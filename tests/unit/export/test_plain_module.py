"""Python source of a generator: equal to the network at several sizes, with PyTorch alone."""

import importlib.util
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save
from torch import nn

import paragan as pg
from paragan.core.errors import CheckpointError
from paragan.export import formats
from paragan.export.generator_file import GeneratorInfo
from paragan.export.sampler import Sampler
from paragan.export.traceable import traceable
from tests.unit.export.image_runs import RUNS
from tests.unit.export.test_programs_of_any_size import SIZES, output_of


def load_module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "vqgan" else pytest.mark.slow) for name in RUNS]
)
def test_source_computes_images_of_any_size(image_runs, programs_folder, name):
    directions = ("a_to_b", "b_to_a") if name == "translate" else (None,)
    sampler = pg.load(image_runs / name)
    for direction in directions:
        words = () if direction is None else ("--direction", direction)
        folder = programs_folder(name, *words)
        generator = load_module(folder / f"{direction or 'generator'}.py").load(folder / "generator.safetensors")
        for size in SIZES:
            x = torch.rand(size) * 2 - 1
            with torch.no_grad():
                expected = sampler.net.directions[direction](x) if direction else output_of(sampler, name, x)
                images = generator(x)
            torch.testing.assert_close(images, getattr(expected, "images", expected), rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "channels"), [("vocoder", 40), ("codec", 1)])
def test_source_computes_audio_of_any_length(audio_runs, exporting, tmp_path, name, channels):
    exporting(audio_runs / name, "--format", "python", "--out", tmp_path)
    generator = load_module(tmp_path / "generator.py").load(tmp_path / "generator.safetensors")
    sampler = pg.load(audio_runs / name)
    for length in (64 * 9, 64 * 20):
        x = torch.rand(2, channels, length) * 2 - 1
        torch.testing.assert_close(generator(x), output_of(sampler, name, x), rtol=0, atol=1e-6)


def test_card_loads_the_source_where_there_is_torch_alone(programs_folder):
    folder = programs_folder("vqgan")
    section = (folder / "README.md").read_text().partition("As Python source")[2]
    block = section.split("```python\n")[1].split("```")[0]
    absent = "import sys; sys.modules.update(dict.fromkeys(['paragan', 'safetensors', 'numpy', 'PIL']))\n"
    code = f"{absent}{block}\nprint(tuple(images.shape))"
    ended = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("(3, 3, ")


class Masked(nn.Module):
    """Names of modules that are no names in Python, a value read twice, a region without gradients, two tensors."""

    latent = 4

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({"a-b": nn.Linear(4, 4), "2": nn.Linear(4, 4)})
        self.register_buffer("scale", torch.tensor(2.0, dtype=torch.float64))

    def forward(self, z):
        x = self.layers["a-b"](z)
        with torch.no_grad():
            largest, smallest = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
        y = self.layers["2"](x).relu_() + x
        return torch.where(y > 0, y * largest - smallest, x * self.scale.to(x.dtype)).masked_fill(y > 9, float("-inf"))


class Filtered(nn.Module):
    latent = 4

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("kernel", torch.ones(4), persistent=False)

    def forward(self, z):
        return self.linear(z) * self.kernel


class Counted(nn.Module):
    """Functions of torch on a size, which are no operators of tensors."""

    latent = 4

    def forward(self, z):
        rows = torch.sym_max(z.shape[0], 4)
        return z * torch.arange(rows).sum() + torch.sym_float(rows)


def network_of(net):
    info = GeneratorInfo(shape=(1, 2, 2), class_names=(), step=0, images=0)
    return traceable(Sampler(net=net, info=info, seed=0, config=None))


def test_source_of_names_that_are_no_identifiers_is_the_network(tmp_path):
    net = Masked().eval()
    assert formats.python_module(network_of(net), tmp_path / "generator.py") == 0
    generator = load_module(tmp_path / "generator.py").Network()
    generator.load_state_dict(net.state_dict())
    z = torch.randn(6, 4)
    torch.testing.assert_close(generator(z), net(z), rtol=0, atol=0)


def test_a_network_is_traced_once_for_several_formats(tmp_path, monkeypatch):
    network = network_of(Masked().eval())
    assert formats.torch_program(network, tmp_path / "generator.pt2") == 0
    monkeypatch.setattr(torch.export, "export", lambda *_, **__: pytest.fail("traced again"))
    assert formats.python_module(network, tmp_path / "generator.py") == 0


def test_parameters_of_the_source_have_the_gradients_of_the_network(tmp_path):
    net = Masked().eval()
    formats.python_module(network_of(net), tmp_path / "generator.py")
    generator = load_module(tmp_path / "generator.py").Network()
    generator.load_state_dict(net.state_dict())
    z = torch.randn(6, 4)
    for module in (net, generator):
        module(z).square().sum().backward()
    for (name, weight), (other, exported) in zip(net.named_parameters(), generator.named_parameters(), strict=True):
        assert name == other
        torch.testing.assert_close(weight.grad, exported.grad, rtol=0, atol=0)


def test_functions_of_torch_on_sizes_are_named_in_the_source(tmp_path):
    assert formats.python_module(network_of(Counted().eval()), tmp_path / "generator.py") == 0
    generator = load_module(tmp_path / "generator.py").Network()
    for batch in (2, 9):
        z = torch.randn(batch, 4)
        torch.testing.assert_close(generator(z), Counted()(z), rtol=0, atol=0)


def test_network_with_tensors_that_are_not_saved_is_refused_by_name(tmp_path):
    with pytest.raises(CheckpointError, match=r"kernel.*--format torch"):
        formats.python_module(network_of(Filtered().eval()), tmp_path / "generator.py")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "g.py"
    formats.python_module(network_of(Masked().eval()), path)
    return load_module(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04" * 8,
        save({"other.weight": torch.zeros(4)}),
        save({name: torch.zeros(3) for name in Masked().state_dict()}),
    ],
    ids=["empty", "zip", "other names", "other shapes"],
)
def test_source_refuses_other_files_in_a_line(source, tmp_path, content):
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"^.*w\.safetensors: no .*; pass .*$"):
        source.load(tmp_path / "w.safetensors")


@pytest.mark.parametrize("convert", [nn.Module.half, nn.Module.double, lambda net: net.to(torch.bfloat16)])
def test_source_refuses_another_precision_in_a_line(source, tmp_path, convert):
    (tmp_path / "w.safetensors").write_bytes(save(Masked().state_dict()))
    generator = source.load(tmp_path / "w.safetensors").to("cpu")
    with pytest.raises(TypeError, match=r"^this source computes in the precision of its file"):
        convert(generator)


def test_source_refuses_sizes_that_the_network_does_not_take_in_a_line(programs_folder):
    folder = programs_folder("vqgan")
    generator = load_module(folder / "generator.py").load(folder / "generator.safetensors")
    for size, axis in (((1, 3, 37, 32), 2), ((1, 3, 32, 33), 3)):
        with pytest.raises(ValueError, match=rf"^image: axis {axis} of .* is no multiple of \d+; pad it, or cut it$"):
            generator(torch.zeros(size))
