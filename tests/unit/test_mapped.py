"""Images that lie in memory once for all processes of a host."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from paragan.build.data import open_data
from paragan.config import read_recipe
from paragan.datasets._host_shared import share_on_host
from paragan.datasets._in_memory import InMemorySource

COUNT, SIDE = 2048, 32  # 2 MiB


def images(seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (COUNT, 1, SIDE, SIDE), dtype=torch.uint8, generator=generator)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path))
    return tmp_path / "images"


def mapping(path: Path) -> dict[str, int]:
    """kB of the pages of a file in this process, by kind; nothing where it is not mapped."""
    found: dict[str, int] = {}
    here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if " " in name.strip() or "-" in name.split(" ")[0]:
            here = line.endswith(str(path))
        elif here and rest.strip().endswith("kB"):
            found[name] = found.get(name, 0) + int(rest.split()[0])
    return found


linux = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc/self/smaps")


@linux
def test_shared_images_come_from_the_mapped_file(cache):
    source = share_on_host(InMemorySource(images(), fingerprint="some"))
    assert torch.equal(source.images_NCHW, images())
    x_BCHW = source.fetch([3, 1])["image"]
    assert torch.equal(x_BCHW, images()[[3, 1]])
    found = mapping(cache / "some.u8")
    assert found["Rss"] >= COUNT * SIDE * SIDE // 1024 and found["Anonymous"] == 0


@linux
def test_a_second_process_holds_the_same_pages(cache):
    source = share_on_host(InMemorySource(images(), fingerprint="some"))
    program = (
        "import sys, torch; from paragan.datasets._host_shared import share_on_host;"
        "from tests.unit.test_mapped import *;"
        "held = share_on_host(InMemorySource(images(), fingerprint='some')); held.images_NCHW.sum();"
        "import json; print(json.dumps(mapping(Path(sys.argv[1]))))"
    )
    words = [sys.executable, "-c", program, str(cache / "some.u8")]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout)
    assert source.images_NCHW.sum() > 0
    assert found["Pss"] <= found["Rss"] * 0.6 and found["Private_Clean"] + found["Anonymous"] == 0


def test_a_file_with_other_images_is_replaced(cache):
    share_on_host(InMemorySource(images(1), fingerprint="some"))
    assert torch.equal(share_on_host(InMemorySource(images(2), fingerprint="some")).images_NCHW, images(2))
    assert (cache / "some.u8").read_bytes() == images(2).numpy().tobytes()
    (cache / "some.u8").write_bytes(b"short")
    assert torch.equal(share_on_host(InMemorySource(images(2), fingerprint="some")).images_NCHW, images(2))
    assert [path.name for path in cache.iterdir()] == ["some.u8"]


def test_what_is_written_to_the_images_stays_in_the_process(cache):
    source = share_on_host(InMemorySource(images(), fingerprint="some"))
    source.images_NCHW.zero_()
    assert (cache / "some.u8").read_bytes() == images().numpy().tobytes()


@pytest.mark.parametrize("why", ["no folder can be made", "little", "of no name"])
def test_otherwise_each_process_keeps_its_own(why, cache, tmp_path):
    if why == "no folder can be made":
        cache.write_text("a file")
    few = images()[:4] if why == "little" else images()
    source = InMemorySource(few, fingerprint="" if why == "of no name" else "some")
    assert share_on_host(source).images_NCHW is few
    assert not cache.is_dir()


def test_processes_of_one_run_share_and_a_run_alone_leaves_the_cache_alone(cache, tmp_path):
    config = read_recipe("vanilla-mnist", ["data.name=npz", f"data.path={saved(tmp_path)}"])
    alone = open_data(config)
    assert not cache.exists()
    shared = open_data(config, shared=True)
    assert len(list(cache.iterdir())) == 1  # the held-out part is small
    assert torch.equal(shared.train.images_NCHW, alone.train.images_NCHW)


def saved(folder: Path) -> Path:
    import numpy as np

    np.savez(folder / "mine.npz", images=images().permute(0, 2, 3, 1).numpy())
    return folder / "mine.npz"
