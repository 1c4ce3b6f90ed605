"""A bucket in memory whose requests fail as a test says."""

from collections import Counter
from types import SimpleNamespace

import obstore
from obstore.store import MemoryStore

from paragan.core.registry import has_extension
from paragan.storage.bucket import ObjectBucket

ADDRESS = "s3://bucket/run"


class MemoryBucket:
    """What a store holds, and its faults by operation (of `obstore`): functions of (name, the real call)."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.faults: dict[str, object] = {}
        self.counts: Counter[str] = Counter()
        self._real = {name: getattr(obstore, name) for name in ("put", "get", "get_range", "list", "delete")}

    def open(self, address=ADDRESS, timeout_s=0.0):
        return ObjectBucket(self.store, address)

    def names(self):
        return sorted(meta["path"] for batch in self._real["list"](self.store) for meta in batch)

    def content(self, name):
        return bytes(self._real["get"](self.store, name).bytes())

    def write(self, name, content):
        self._real["put"](self.store, name, content)

    def remove(self, name):
        self._real["delete"](self.store, name)

    def call(self, operation, store, name, *args, **options):
        self.counts[operation] += 1
        real = self._real[operation]
        fault = self.faults.get(operation)
        if fault is None:
            return real(store, name, *args, **options)
        return fault(name, lambda: real(store, name, *args, **options))


def memory_bucket(monkeypatch):
    """All requests of the package go through it, without pauses between tries."""
    made = MemoryBucket()
    for name in made._real:
        monkeypatch.setattr(obstore, name, lambda *args, _name=name, **options: made.call(_name, *args, **options))
    monkeypatch.setattr("paragan.storage.bucket._FIRST_PAUSE_S", 0.0)
    if has_extension("buckets"):
        monkeypatch.setattr("paragan.extensions.buckets.remote_run.open_bucket", made.open)
    return made


def failing(times=10**9, when=lambda name: True):
    """A fault: the store is unavailable so many times."""
    left = [times]

    def fault(name, call):
        if left[0] and when(name or ""):
            left[0] -= 1
            raise obstore.exceptions.GenericError("Server returned status 503 Service Unavailable")
        return call()

    return fault


def lying(when=lambda name: True):
    """A fault: the store confirms what it does not store."""
    return lambda name, call: {"e_tag": "x", "version": None} if when(name) else call()


def truncating(times=10**9, when=lambda name: True):
    """A fault: the second half of a response is missing."""
    left = [times]

    def fault(name, call):
        found = call()
        if not left[0] or not when(name):
            return found
        left[0] -= 1
        if not hasattr(found, "meta"):  # a range
            return bytes(found)[: len(found) // 2]
        content = bytes(found.bytes())
        cut = content[: len(content) // 2]
        return SimpleNamespace(meta=found.meta, bytes=lambda: cut, stream=lambda: iter([cut]))

    return fault
