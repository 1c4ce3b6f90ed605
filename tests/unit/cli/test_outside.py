"""Networks and losses of somebody else: each mistake in them is one line, before anything is written."""

import sys

import pytest

from paragan.cli.main import main
from paragan.cli.new import new

CTOR = "def __init__(self, options: Options, shape: tuple[int, int, int], num_classes: int = 0) -> None:"
G_OUT, D_OUT = "return self.layers(z)", "return self.layers(x).squeeze(1)"
LATENT = "self.latent = options.latent"
MISTAKES = {  # file, what stands there, what stands there instead, what is said
    "unknown name": ("nets.py", "from torch", "oops\nfrom torch", "importing {0}.nets raised NameError"),
    "package raises": ("__init__.py", "", "raise OSError('no')", "importing {0} raised OSError: no"),
    "no module": ("nets.py", "class Generator(nn.Module)", "class Generator", "is not a torch.nn.Module"),
    "other signature": ("nets.py", CTOR, "def __init__(self) -> None:", "raised TypeError"),
    "constructor raises": ("nets.py", LATENT, "raise ValueError('bad width')", "ValueError: bad width"),
    "size of images": ("nets.py", G_OUT, f"{G_OUT}[..., :15]", "(4, 1, 16, 15); return one of the shape of 'image'"),
    "flat images": ("nets.py", G_OUT, f"{G_OUT}.flatten(1)", "(4, 256); return one of"),
    "two outputs": ("nets.py", G_OUT, f"{G_OUT}, z", "returned a tuple; return one of"),
    "forward raises": ("nets.py", G_OUT, "return self.layer(z)", "Generator.forward(z, y) raised AttributeError"),
    "mean logit": ("nets.py", D_OUT, "return self.layers(x).mean()", "() for 4 samples; keep the batch axis: a logit"),
    "no gradient": ("nets.py", D_OUT, f"{D_OUT}.detach()", "without a gradient"),
    "no d_loss": ("loss.py", "def d_loss", "def disc_loss", "raised NameError: name 'd_loss' is not defined"),
    "mean of d": (
        "loss.py",
        "F.softplus(-real) + F.softplus(fake)",
        "F.softplus(fake).mean()",
        "per sample, not a mean",
    ),
    "not a number": (
        "nets.py",
        G_OUT,
        f"{G_OUT} * float('nan')",
        "forward(z, y) returned values that are not",
    ),
    "g loss detached": ("loss.py", "F.softplus(-fake)", "F.softplus(-fake).detach()", "g_loss returned values without"),
    "changed in place": ("nets.py", D_OUT, D_OUT.replace("(x)", "(x.mul_(0.5))"), "the backward pass from"),
    "loss takes one": ("loss.py", "def d_loss(real: Tensor, fake: Tensor)", "def d_loss(fake)", "d_loss(real, fake) r"),
    "plain Options": (
        "nets.py",
        "@dataclass(frozen=True)\n",
        "",
        "`Options` is not a frozen dataclass; put @dataclass(frozen=True)",
    ),
    "Options fail": ("nets.py", "width: int = 32", "width: int = 1 // 0", "`Options` raised ZeroDivisionError"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_in_outside_code_is_one_line(case, tmp_path, monkeypatch, capsys):
    name = f"own_{list(MISTAKES).index(case)}"  # modules stay imported
    file, stands, instead, message = MISTAKES[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    new(name)
    text = (tmp_path / name / file).read_text()
    assert stands in text
    (tmp_path / name / file).write_text(text.replace(stands, instead, 1) if stands else instead)
    capsys.readouterr()
    assert main(["train", f"{name}/recipe.yaml", "--out", "run"]) == 2
    error = capsys.readouterr().err.splitlines()
    assert len(error) == (3 if case == "package raises" else 1)  # named by model and by loss, and where to look
    assert message.format(name) in error[0]
    assert not (tmp_path / "run").exists()


def test_the_error_names_the_line_of_outside_code(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    new("own_place")
    path = tmp_path / "own_place" / "nets.py"
    path.write_text(path.read_text().replace(G_OUT, "return self.layer(z)"))
    line = path.read_text()[: path.read_text().index("self.layer(z)")].count("\n") + 1
    main(["train", "own_place/recipe.yaml", "--out", "run"])
    assert f"nets.py:{line})" in capsys.readouterr().err


@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize(
    ("stands", "instead", "text"),
    [
        (
            G_OUT,
            f"{G_OUT}.sigmoid()",
            "Generator.forward(z, y) ends in a sigmoid, in (0, 1), and 'image' is from",
        ),
        (D_OUT, f"{D_OUT}.sigmoid()", "Discriminator.forward(x, y) ends in a sigmoid, softmax or clamp, and"),
    ],
)
def test_a_warning_is_a_line_without_the_code_that_raised_it(stands, instead, text, tmp_path, monkeypatch, capsys):
    name = f"warned_{'discriminator' if stands == D_OUT else 'generator'}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    new(name)
    nets = tmp_path / name / "nets.py"
    nets.write_text(nets.read_text().replace(stands, instead, 1))
    assert main(["train", f"{name}/recipe.yaml", "train.kimg=0.01", "evaluation.features=null"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("warning: model:")], lines
    assert any(text in line for line in lines)
    assert not any("UserWarning" in line or "validation.py" in line for line in lines)
