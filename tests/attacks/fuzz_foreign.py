"""Files of other programs: published weights, statistics of images, tokens of a codec."""

import atexit
import contextlib
import io
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import torch
import torch._dynamo  # which tensors without memory import, and which makes a folder
from safetensors.torch import load_file, save

import paragan
from paragan.cli.main import main
from paragan.core.errors import DataError
from paragan.evaluation import folder_scores
from paragan.runs.evaluate import open_extractor
from tests.attacks.fuzz_runs import _with_other_header
from tests.attacks.mutations import mutate_bytes
from tests.unit.checkpoint import test_published_biggan, test_published_hifigan, test_published_pix2pix
from tests.unit.export.image_runs import noise

_SIZES = (0, 1, 3, 2**31, 2**40, 2**62)


@cache
def _published() -> list[dict[str, torch.Tensor]]:
    """Small networks of four projects. Not to be changed."""
    pix2pix, hifigan = test_published_pix2pix, test_published_hifigan
    norm = hifigan.parametrizations.weight_norm
    networks = [
        pix2pix.unet(4, [4 * min(2**level, 8) for level in range(5)]),
        pix2pix.named(model=pix2pix.translator(4, 6, False)),
        hifigan.named(generator=hifigan.Vocoder(16, (8, 8), [(3, (1, 3, 5))] * 3, norm, True)),
        test_published_biggan.BigG(4, 5, 8, 2),
    ]
    return [network.state_dict() for network in networks]


def fuzz_published(draws: Random, root: Path) -> None:
    """Files of `torch.save` and of safetensors with other bytes, headers, names, shapes and kinds of values."""
    state = {name: value.detach().contiguous() for name, value in draws.choice(_published()).items()}
    path = root / "g.pth"
    way = draws.randrange(4)
    if way == 0:
        stream = io.BytesIO()
        torch.save(state, stream)
        path.write_bytes(mutate_bytes(draws, stream.getvalue()))
    elif way == 1:
        path.write_bytes(_with_other_header(draws, save(state)))
    else:
        for _ in range(draws.randint(1, 3)):
            _change_tensor(draws, state)
        if all(isinstance(value, torch.Tensor) for value in state.values()) and draws.random() < 0.5:
            path.write_bytes(save({name: value.contiguous() for name, value in state.items()}))
        else:
            torch.save(draws.choice((state, {"state_dict": state}, [state])), path)
    paragan.load(path)


def _change_tensor(draws: Random, state: dict) -> None:
    """Replace, rename, reshape or remove one tensor; some shapes have sizes without an element."""
    name = draws.choice(list(state))
    value = state[name]
    match draws.randrange(6):
        case 0:
            state[name.replace("0", str(draws.choice((1, 7, 999, 10**9))), 1)] = state.pop(name)
        case 1 | 2:
            with contextlib.suppress(RuntimeError):  # more elements than memory, or than numbers
                shape = [draws.choice(_SIZES) for _ in range(draws.randrange(4))]
                state[name] = torch.empty((*shape, 0) if max(shape, default=0) > 3 else shape)
        case 3:
            state[name] = draws.choice((None, 1, "x", [value], {"a": value}, torch.tensor(float("nan"))))
        case 4:
            del state[name]
        case _ if isinstance(value, torch.Tensor):
            state[name] = draws.choice((value[None], value.to(torch.uint8), value.expand(2, *value.shape)))


def fuzz_statistics(draws: Random, root: Path) -> None:
    """Statistics or images in an npz file, of other kinds, shapes and sizes, as `score` reads them."""
    arrays = draws.choice(({"mu": np.zeros(4), "sigma": np.eye(4)}, {"arr_0": np.zeros((4, 8, 8, 3), np.uint8)}))
    arrays |= {"extractor": np.array("x y")} if draws.random() < 0.2 else {}
    for name in arrays if draws.random() < 0.7 else ():
        value = arrays[name] if arrays[name].dtype.kind != "U" else np.zeros(3)
        changed = (np.array(1.0), np.array("a\x1b[31m"), np.zeros(2, [("a", "f4")]), np.zeros((2**20, 0)))
        others = [
            value[None],
            value * 0 + 1e308,
            value - np.inf,
            value.astype(">f8"),
            value[:0],
            value.astype("f2"),
        ]
        arrays[name] = draws.choice((*changed, *others, value, value.astype(bool), value.astype("c8")))
    np.savez(root / "other.npz", **arrays)
    if draws.random() < 0.4:
        (root / "other.npz").write_bytes(mutate_bytes(draws, (root / "other.npz").read_bytes()))
    np.savez(root / "plain.npz", mu=np.zeros(4), sigma=np.eye(4))
    one, other = (folder_scores.read_images(str(root / f"{name}.npz"), _extractor()) for name in ("other", "plain"))
    folder_scores.compare(one, other)


@cache
def _extractor() -> object:
    return open_extractor("cifar10")


@cache
def _tokens() -> Path:
    """A folder with `run`, a run of a VQGAN, and `tokens` of two images. Not to be changed."""
    root = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    (root / "images").mkdir()
    for number in range(6):
        noise(32, 32, number).save(root / "images" / f"{number}.png")
    settings = ("model.width=8", "data={name: folder, flip: false}", "balancer=null", "train.batch=2")
    settings += ("penalties=[{name: l1}, {name: codebook}]", f"data.path={root / 'images'}", "data.size=32")
    small = ("train.kimg=0.004", "train.threads=1", "every.score_kimg=0", "writers=[jsonl]")
    _call("train", "vqgan-cifar10", *settings, *small, "--out", root / "run")
    _call("apply", root / "run", root / "images", "--out", root / "tokens", "--encode")
    return root


def _call(*words: object) -> None:
    shown, message = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(message):
        code = main([str(word) for word in words])
    if "\x1b" in shown.getvalue() + message.getvalue():
        raise AssertionError(f"{words[0]} printed an escape sequence")
    if code != 0:
        raise DataError(message.getvalue() or "refused without a word")


def fuzz_tokens(draws: Random, root: Path) -> None:
    """Tokens for `apply --decode` next to pipes and devices, or the record in the folder of its results."""
    data = Path(shutil.copytree(_tokens() / "tokens", root / "in"))
    out = root / "out"
    if draws.random() < 0.2:
        shutil.copytree(data, out)
        record = out / draws.choice(("applied.json", "inputs.jsonl"))
        record.write_bytes(mutate_bytes(draws, record.read_bytes()))
        _call("apply", _tokens() / "run", _tokens() / "images", "--out", out, "--encode")
        return
    path = draws.choice(sorted(data.glob("*.safetensors")))
    if draws.random() < 0.5:
        path.write_bytes(_with_other_header(draws, path.read_bytes()))
    else:
        tensors = load_file(path)
        name = draws.choice(list(tensors))
        value = tensors[name]
        others = (value[None], value[:1], value * 0 + 2**62, value * 0 - 1, value.float(), value.to(torch.uint8))
        sizes = (torch.tensor(3), torch.tensor([10**6, 10**6]), torch.empty((2**40, 0)), torch.tensor([1] * 50))
        tensors[name] = draws.choice((*others, *sizes)).contiguous()
        path.write_bytes(save(tensors, draws.choice((None, {"weights": "\x1b[31m"}))))
    if draws.random() < 0.1:
        draws.choice((os.mkfifo, lambda place: os.symlink("/dev/zero", place)))(data / "0.safetensors")
    _call("apply", _tokens() / "run", data, "--out", out, "--decode")


TARGETS = {"published": fuzz_published, "statistics": fuzz_statistics, "tokens": fuzz_tokens}
