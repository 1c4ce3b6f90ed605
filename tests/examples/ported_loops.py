"""What tests of ported loops share: differences of weights, and lines of an example."""

import ast
from pathlib import Path

import torch
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[2]


def distance(net, path, prefix="net/"):
    """Largest difference of a weight of a network and those of a checkpoint."""
    saved = load_file(path)
    return max(float((value - saved[prefix + name]).abs().max()) for name, value in net.state_dict().items())


def has_changed(net, before):
    return any(not torch.equal(a, b) for a, b in zip(net.parameters(), before.parameters(), strict=True))


def assert_page_counts_lines(port, by_hand):
    """The page of an example counts the lines of both versions, and the port has less than half of them."""
    tree = ast.parse(Path(port.__file__).read_text(encoding="utf-8"))
    named = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    hand, ported = (node.end_lineno - node.lineno + 1 for node in (named[by_hand], named["ported"]))
    page = (ROOT / f"docs/tutorials/examples/{Path(port.__file__).stem}.md").read_text(encoding="utf-8")
    assert ported < hand / 2
    assert f"| `{by_hand}` | {hand} |\n| `ported` | {ported} |" in page
    table = (ROOT / "docs/how-to/networks/adversarial.md").read_text(encoding="utf-8")
    assert f"(../../tutorials/examples/{Path(port.__file__).stem}.md) | {hand} | {ported} |" in table
