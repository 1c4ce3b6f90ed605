"""What somebody else may have put into an object store: prepared shards, and whole runs. The stores are in memory."""

import contextlib
import io
import json
import os
import shutil
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from unittest.mock import patch

from obstore.store import MemoryStore

from paragan.cli.main import main
from paragan.core.errors import ParaganError
from paragan.datasets import shards
from paragan.extensions.buckets.lease import Lease
from paragan.storage.bucket import ObjectBucket
from paragan.storage.disk_cache import DiskCache
from paragan.storage.remote_store import RemoteStore
from tests.attacks import small_run
from tests.attacks.fuzz_data import changed_shards, fetch_all
from tests.attacks.mutations import dump, mutate_bytes, mutate_json

ADDRESS = "s3://bucket/run"
_EXPIRY_S = 1.0  # of a lease that somebody has put there
_LARGE = b"# " + b"x" * (2 << 20)
_NAMES = (  # of objects that no run has
    *("lease.json", "exit.json", "run.lock", ".hidden", "checkpoints", "samples", "best", "config.yaml/x"),
    *("checkpoints/step-999999999999/manifest.json", "checkpoints/step-000000009/manifest.json", "best/manifest.json"),
    *("checkpoints/step-000000004/deep/er.json", "samples/a b.png", "%2e%2e/x"),
)
_VERBS = (
    *(("watch", ADDRESS, "--once"), ("sample", ADDRESS, "--num", "1"), ("report", ADDRESS)),
    ("train", "digits", *small_run.SETTINGS, "evaluation.features=null", "train.kimg=0.08", "--out", ADDRESS),
)


def fuzz_address(draws: Random, root: Path) -> None:
    """Prepared shards at an address, changed as the target `index` changes those of a folder."""
    data = changed_shards(draws, root)
    store = MemoryStore()
    for path in data.iterdir():
        store.put(path.name, path.read_bytes())

    def open_remote(address: str, cache_bytes: int) -> RemoteStore:
        return RemoteStore(ObjectBucket(store, address, 1, "data.path"), DiskCache(cache_bytes))

    victim = root.parent / "victim"
    victim.write_text("of the user")
    variables = {"PARAGAN_CACHE": str(root / "cache")}
    with patch.dict(os.environ, variables), patch("paragan.storage.shard_folder.open_remote", open_remote):
        for split in ("train", "held_out"):
            fetch_all(shards.source(shards.Options(path="s3://bucket/data", size=8, disk_cache_mb=64), split))
    assert victim.read_text() == "of the user"


def fuzz_bucket(draws: Random, root: Path) -> None:
    """A run in a bucket, of which objects are changed, removed, added and signed again; read and resumed."""
    objects = dict(_objects())
    for _ in range(draws.randint(1, 8)):
        name = draws.choice(sorted(objects))
        match draws.randrange(8):
            case 0:
                del objects[name]
            case 1 | 2:
                objects[draws.choice(_NAMES)] = draws.choice([b"", b"{}", b"null", _LARGE, objects[name]])
            case 3:
                objects[name] = draws.choice([b"", _LARGE, objects[draws.choice(sorted(objects))]])
            case 4 | 5 if name.endswith(".json"):
                with contextlib.suppress(ValueError):  # changed before
                    objects[name] = dump(mutate_json(draws, json.loads(objects[name])))
            case _:
                objects[name] = mutate_bytes(draws, objects[name])
        if draws.random() < 0.5:  # as an attacker would
            _sign(objects)
        if not objects:
            return
    store = MemoryStore()
    for name, content in objects.items():
        store.put(name, content)
    _call(draws.choice(_VERBS), store, root)


def _call(words: tuple[str, ...], store: MemoryStore, root: Path) -> None:
    """Give a command on a machine that is empty; `ParaganError` if it refuses."""
    message = io.StringIO()
    variables = {"PARAGAN_CACHE": str(root / "cache")}
    with (
        patch.dict(os.environ, variables),
        patch("paragan.extensions.buckets.remote_run.open_bucket", lambda *_: ObjectBucket(store, ADDRESS, 1)),
        patch("paragan.extensions.buckets.remote_run.Lease", lambda bucket: Lease(bucket, _EXPIRY_S)),
        patch("paragan.extensions.buckets.remote_run._follow"),  # a thread that lives as long as the process
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(message),
    ):
        code = main(list(words))
    lines = message.getvalue()
    assert code in (0, 2, 75), lines[-900:]
    assert "Traceback" not in lines and "\x1b" not in lines, lines[-900:]
    if code:
        assert lines.strip(), "refused without a line"
        raise ParaganError(lines)


def _sign(objects: dict[str, bytes]) -> None:
    """Make the manifests agree with the objects next to them."""
    for name in [name for name in objects if name.endswith("/manifest.json")]:
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            manifest, folder = json.loads(objects[name]), name.rpartition("/")[0]
            for file in manifest["files"]:
                manifest["files"][file] = sha256(objects[f"{folder}/{file}"]).hexdigest()
            objects[name] = dump(manifest)


@cache
def _objects() -> dict[str, bytes]:
    """Objects of a finished run, by name."""
    run = small_run.base() / "run"
    best = shutil.copytree(small_run.newest_checkpoint(run), small_run.base() / "best", dirs_exist_ok=True)
    (best / "score.json").write_text('{"value": 1.0}')
    paths = {str(path.relative_to(run)): path for path in run.rglob("*") if path.is_file() and path.name != "run.lock"}
    paths |= {f"best/step-000000004/{path.name}": path for path in best.iterdir()}
    return {name: path.read_bytes() for name, path in paths.items()}


TARGETS = {"address": fuzz_address, "bucket": fuzz_bucket}
