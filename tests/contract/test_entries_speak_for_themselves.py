"""What others need of a strategy or a penalty is an attribute of it, so that a new one is not silently left out."""

import pytest

from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.protocols import Penalty
from paragan.extensions.planning import choose
from paragan.parallel import Strategy
from tests.tiny_run import train


def test_planner_knows_every_strategy_that_shards(monkeypatch):
    before = choose._sharding_strategies()
    assert before == [("zero1", 3), ("zero2", 4), ("zero3", 5)]
    load = registry.load_module

    class Halved(Strategy):
        sharded_copies = 2

    class Module:
        Strategy = Halved

    monkeypatch.setattr(registry, "names", lambda category, names=registry.names: [*names(category), "halved"])
    monkeypatch.setattr(
        registry, "load_module", lambda category, name: Module if name == "halved" else load(category, name)
    )
    assert choose._sharding_strategies() == [("halved", 2), *before]


@pytest.mark.parametrize("name", registry.names("penalties"))
def test_penalty_that_compares_with_targets_is_refused_without_pairs(name, tmp_path):
    kind = registry.load_module("penalties", name).Penalty
    assert issubclass(kind, Penalty)
    if kind.needs_pairs:
        with pytest.raises(ConfigError, match=f"penalty {name} needs data of pairs"):
            train(tmp_path / "run", f"penalties=[{name}]")
