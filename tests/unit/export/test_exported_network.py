"""Networks of `torch.export` files equal the originals; another file is refused in one line, before it is unpickled."""

import io
import pickle
import zipfile

import pytest
import torch
from torch import nn

from paragan.core.errors import DataError
from paragan.storage.exported_network import ExportedNetwork


class Bomb:
    """What unpickles to a file that must not exist."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def saved(network, inputs, path, **options):
    torch.export.save(torch.export.export(network, inputs, **options), path)
    return path


def test_transformer_equals_torch(transformer_file):
    network, path = transformer_file
    found = ExportedNetwork(path)
    assert (found.output_names, found.input_shape) == (("cls", "patches"), (3, 28, 28))
    x = torch.randn(5, 3, 28, 28)
    with torch.no_grad():
        expected = network(x)
        assert all(torch.equal(value, expected[name]) for name, value in found(x).items())


@pytest.mark.parametrize("size", [8, 22])
def test_network_of_any_size_equals_torch(maps_file, size):
    network, path = maps_file
    found = ExportedNetwork(path)
    assert (found.output_names, found.input_shape) == (("0", "1"), (3, None, None))
    x = torch.randn(3, 3, size, size)
    with torch.no_grad():
        assert all(map(torch.equal, found(x).values(), network(x)))


def test_network_runs_in_half_precision_in_either_mode(transformer_file):
    network, path = transformer_file
    found = ExportedNetwork(path).to(torch.bfloat16)
    x = torch.randn(2, 3, 28, 28)
    with torch.no_grad():
        value = found.train()(x.bfloat16())["cls"]
        assert torch.equal(value, found.eval()(x.bfloat16())["cls"]) and value.dtype == torch.bfloat16
        assert torch.allclose(value.float(), network(x)["cls"], atol=0.1)


def test_constants_of_the_graph_move_with_the_weights(tmp_path):
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return self.scale * x.mean((2, 3)) + torch.arange(3, device=x.device)

    dims = ({0: torch.export.Dim("batch")},)
    path = saved(Positions(), (torch.zeros(2, 3, 8, 8),), tmp_path / "net.pt2", dynamic_shapes=dims)
    moved = ExportedNetwork(path).to("meta")
    assert moved(torch.zeros(4, 3, 8, 8, device="meta"))["0"].device.type == "meta"


def test_file_with_another_sha256_is_refused_before_anything_of_it_is_unpickled(transformer_file, tmp_path):
    trap, changed = tmp_path / "opened", tmp_path / "changed.pt2"
    pickled = io.BytesIO()
    torch.save(Bomb(trap), pickled)
    with zipfile.ZipFile(transformer_file[1]) as archive, zipfile.ZipFile(changed, "w") as out:
        for info in archive.infolist():
            is_pickle = info.filename.endswith("sample_inputs/model.pt")
            out.writestr(info.filename, pickled.getvalue() if is_pickle else archive.read(info))
    with pytest.raises(DataError, match=f"not {'0' * 64}; get the right file"):
        ExportedNetwork(changed, "0" * 64)
    assert not trap.exists()


class Two(nn.Module):
    def forward(self, x, y):
        return x + y


@pytest.mark.parametrize(
    ("network", "inputs", "message"),
    [
        (nn.Identity(), (torch.zeros(2, 3, 8, 8),), r"takes 2 images at a time; export it with dynamic_shapes=\(\{0:"),
        (Two(), (torch.zeros(2, 3, 8, 8),) * 2, "must take one tensor of images and nothing else"),
        (nn.Identity(), (torch.zeros(2, 3),), r"does not take images \(B, C, H, W\)"),
    ],
)
def test_network_of_other_inputs_is_refused_in_one_line(tmp_path, network, inputs, message):
    path = saved(network, inputs, tmp_path / "net.pt2")
    with pytest.raises(DataError, match=message) as caught:
        ExportedNetwork(path)
    assert "\n" not in str(caught.value) and "net.pt2: " in str(caught.value)


@pytest.mark.parametrize("network", [nn.BatchNorm2d(3), nn.ReLU(inplace=True)])
def test_network_that_changes_its_buffers_or_the_images_is_refused(tmp_path, network):
    dims = ({0: torch.export.Dim("batch")},)
    path = saved(network, (torch.zeros(2, 3, 8, 8),), tmp_path / "net.pt2", dynamic_shapes=dims)
    with pytest.raises(DataError, match="changes its buffers or the images; export it after"):
        ExportedNetwork(path)


@pytest.mark.parametrize("content", [b"", b"text", pickle.dumps({}), b"PK\x05\x06" + bytes(18)])
def test_another_file_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "other.pt2").write_bytes(content)
    with pytest.raises(DataError, match=r"other\.pt2: ") as caught:
        ExportedNetwork(tmp_path / "other.pt2")
    assert "\n" not in str(caught.value)


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        ExportedNetwork(tmp_path / "none.pt2")


def test_failing_network_names_the_size_of_the_images(transformer_file):
    with pytest.raises(DataError, match=r"the network failed for images \(2, 3, 35, 35\) of torch.float32"):
        ExportedNetwork(transformer_file[1])(torch.zeros(2, 3, 35, 35))
