"""Nothing outside `hardware/` names a kind of accelerator: a new one is one new file there."""

import ast
import re
from collections.abc import Iterator

import pytest

KINDS = {"cuda", "mps", "xpu", "tpu", "hpu", "rocm", "hip"}


def test_only_hardware_names_a_device_kind(modules):
    named = [
        f"{m.at(node)} {word!r}"
        for m in modules
        if m.floor != "hardware"
        for node in m.code
        for text in spelled(node)
        for word in words(text) & KINDS
    ]
    assert named == []


@pytest.mark.parametrize(
    "line",
    [
        "torch.cuda.synchronize()",
        "x = x.to('cuda:0')",
        "import torch.cuda",
        "from torch import cuda",
        "if t.is_cuda: pass",
        "def f(use_cuda): pass",
        "f(cuda=True)",
        "raise E(f'no CUDA device {n}')",
    ],
)
def test_the_rule_sees(line):
    assert KINDS & {word for node in ast.walk(ast.parse(line)) for text in spelled(node) for word in words(text)}


def spelled(node: ast.AST) -> Iterator[str]:
    """Strings and identifiers that this node itself holds."""
    for _, value in ast.iter_fields(node):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str):
                yield item


def words(text: str) -> set[str]:
    return set(re.split(r"[^a-z]+", text.lower()))
