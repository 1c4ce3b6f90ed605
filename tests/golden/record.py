"""Train the fixed configurations and print, compare or write the sha256 of what they end with.

    python -m tests.golden.record                 all of them, compared with hashes.json
    python -m tests.golden.record sngan biggan    these
    python -m tests.golden.record --write         write hashes.json for this processor

Floating-point results differ between processors, so the file holds a set of hashes for each processor that gives
another `fingerprint`: plain torch operations, which no change of this package can move.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.golden.configurations import BASE, COMMON, CONFIGURATIONS, write_pairs

HASHES = Path(__file__).with_name("hashes.json")
KINDS = {"net": "weights", "ema": "ema", "optimizer": "optimizer"}
# The oldest instruction set of all machines that may run this: fewer processors then differ.
PORTABLE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
}
_FINGERPRINT = """
import hashlib, torch
torch.manual_seed(0); torch.set_num_threads(1)
x = torch.randn(16, 3, 16, 16, requires_grad=True)
h = x
for layer in (torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.SiLU(),
              torch.nn.Conv2d(8, 16, 4, 2, 1), torch.nn.Flatten(), torch.nn.Linear(1024, 24)):
    h = layer(h)
(slope,) = torch.autograd.grad(torch.nn.functional.softplus(h).sum(), x, create_graph=True)
slope.square().sum().backward()
state = b"".join(t.detach().numpy().tobytes() for t in (h, slope, x.grad))
print(hashlib.sha256(state + torch.__version__.encode()).hexdigest()[:16])
"""
_TIMEOUT_S = 240


def environment() -> dict[str, str]:
    """This process's, with the portable instruction set."""
    return {**os.environ, **PORTABLE}


def fingerprint() -> str:
    """What this processor and this torch compute, as 16 hexadecimal digits."""
    command = [sys.executable, "-c", _FINGERPRINT]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    return done.stdout.strip()


def hashes_of(name: str, folder: Path) -> dict[str, str]:
    """Train one configuration in `folder` and hash its weights, averages and optimiser state."""
    recipe, pairs, out = folder / "base.yaml", folder / "pairs", folder / "run"
    recipe.write_text(BASE)
    words = [*COMMON, *CONFIGURATIONS[name]]
    if any("PAIRS" in word for word in words):
        write_pairs(pairs)
        words = [word.replace("PAIRS", str(pairs)) for word in words]
    command = [sys.executable, "-m", "paragan", "train", str(recipe), "--out", str(out), *words]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return _hashed(out)


def _hashed(run: Path) -> dict[str, str]:
    """sha256 by kind, over the sorted sha256 of single tensors: names of files, groups and tensors may change."""
    from paragan.checkpoint.reader import read_checkpoint

    (path,) = (run / "checkpoints").glob("step-*")
    found: dict[str, list[str]] = {kind: [] for kind in KINDS.values()}
    for stored in read_checkpoint(path).groups.values():
        for name in stored:
            kind = KINDS.get(name.partition("/")[0])
            if kind is not None:
                found[kind].append(_hash_of(stored[name]))
    return {kind: _joined(sorted(sums)) for kind, sums in found.items() if sums}


def _hash_of(tensor) -> str:
    head = f"{tensor.dtype}{tuple(tensor.shape)}".encode()
    return hashlib.sha256(head + tensor.contiguous().numpy().tobytes()).hexdigest()


def _joined(sums: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sums).encode()).hexdigest()[:32]


def known(processor: str) -> dict[str, dict[str, str]]:
    """The committed hashes by configuration for this fingerprint; empty for a processor without any."""
    return json.loads(HASHES.read_text()).get(processor, {}) if HASHES.exists() else {}


def main(words: list[str]) -> int:
    write = "--write" in words
    names = [word for word in words if word != "--write"] or list(CONFIGURATIONS)
    processor = fingerprint()
    expected = known(processor)
    found: dict[str, dict[str, str]] = {}
    differing, failed = 0, 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found[name] = hashes_of(name, Path(folder))
            except RuntimeError as error:
                print(error, flush=True)
                failed += 1
                continue
        same = found[name] == expected.get(name)
        differing += not same
        print(f"{name:30} {'same' if same else 'differs'}  {found[name]}", flush=True)
    if write and not failed:
        everything = json.loads(HASHES.read_text()) if HASHES.exists() else {}
        everything[processor] = {**expected, **found}
        HASHES.write_text(json.dumps(everything, indent=1) + "\n")
        return 0
    return 1 if differing or failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
