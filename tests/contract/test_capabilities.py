"""The table of capabilities: every holder has or refuses each one, and a new one is refused without a line of code."""

import enum
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch import nn

import paragan
from paragan import build
from paragan.config import choose, read_recipe
from paragan.core import capabilities, registry
from paragan.core.capabilities import ALL, Capability, Holder, Need, check_capabilities
from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.roles import Roles
from paragan.core.source import image_specs
from paragan.core.types import Side
from paragan.extensions.parameter_server.schemes import parameter_server
from paragan.game.needs import check_player
from paragan.game.options import PlayerOptions
from paragan.game.player import Player
from paragan.game.scheme import Scheme
from paragan.parallel import Strategy
from paragan.schemes import asynchronous
from tests.laws.small_gan import game

# lacked by holders that a setting makes (batch norm), or only by strategies outside paragan
LACKED_BY_NO_ENTRY = {Capability.SEPARATE_SAMPLES, Capability.DOUBLE_BACKWARD}


def _schemes():
    for name in registry.names("schemes"):
        yield build.scheme(SimpleNamespace(scheme=choose("schemes", name)))
    on_ranks = [asynchronous.Scheme(options) for options in (
        asynchronous.Options(), asynchronous.Options(g_batch=4), asynchronous.Options(staleness=0, reuse=False)
    )]  # fmt: skip
    for scheme, ranks in ((parameter_server.Scheme(), {side: [0] for side in Side}), *(
        (scheme, {Side.G: [0], Side.D: [1, 2]}) for scheme in on_ranks
    )):  # fmt: skip
        scheme._roles = Roles(world=World(size=3), batch_world=ALONE, ranks=ranks)
        yield scheme


def _strategies():
    for name in registry.names("parallel"):
        yield registry.load_module("parallel", name).Strategy(registry.options("parallel", name)())


HOLDERS = [value for value in vars(capabilities).values() if isinstance(value, Holder)]
HOLDERS += capabilities.EXECUTORS.values()
TABLE = [*HOLDERS, *(one.holder for one in _schemes()), *(one.holder for one in _strategies())]


@pytest.mark.parametrize("capability", Capability)
def test_capability_is_had_by_a_holder_and_refused_by_name_by_the_others(capability):
    need = Need("the toy", capability, "use another")
    refused = [holder for holder in TABLE if capability not in holder.capabilities]
    assert len(refused) < len(TABLE)
    for holder in TABLE:
        if holder not in refused:
            check_capabilities(holder, [need])
    for holder in refused:
        with pytest.raises(ConfigError) as caught:
            check_capabilities(holder, [need])
        text = f"the toy needs {capability.value}, which {holder.name} does not support; use another"
        assert str(caught.value).startswith(text) and holder.instead in str(caught.value)


def without_words(capabilities: type[enum.Enum]) -> list[str]:
    """Members whose value does not end the sentence "… needs"."""
    worded = re.compile(r"[a-z][A-Za-z' 0-9-]+[A-Za-z0-9]")
    return [one.name for one in capabilities if not isinstance(one.value, str) or not worded.fullmatch(one.value)]


def test_every_capability_has_words_of_its_own():
    assert not without_words(Capability)
    assert len({one.value for one in Capability}) == len(Capability.__members__)
    toy = enum.Enum("toy", {"GOOD": "whole weights", "AUTO": 3, "EMPTY": "", "TITLE": "Whole weights."})
    assert without_words(toy) == ["AUTO", "EMPTY", "TITLE"]


def test_every_capability_is_needed_and_lacked_somewhere():
    lacked = {one for one in Capability if any(one not in holder.capabilities for holder in TABLE)}
    assert lacked == ALL - LACKED_BY_NO_ENTRY
    text = "\n".join(path.read_text() for path in Path(paragan.__file__).parent.rglob("*.py"))
    for capability in Capability:
        assert len(re.findall(rf"Capability\.{capability.name}\b", text)) >= 2, capability


OF_A_GRID = {  # setting: its name in the message
    "train.executor=compile": "train.executor=compile",
    "train.layout=auto": "train.layout=auto",
    "evaluation.mode=background": "evaluation.mode=background",
    "rollback={}": "rollback",
    "init=x": "init",
    "d.init=x": "d.init",
    "d.channel_multiple=8": "d.channel_multiple=8",
    "g.precision=pure": "g.precision=pure",
    "g.adapter=lora": "g.adapter",
    "g.train=[x]": "g.train",
    "players.other.updates_per_step=2": "the setting players",
}


@pytest.mark.parametrize("word", OF_A_GRID)
def test_grid_refuses_a_setting_of_one_pair_by_name(word):
    read_recipe("digits", [word])
    with pytest.raises(ConfigError, match=rf"{OF_A_GRID[word]} needs .* a grid does not support; .*\(grid=null\)"):
        read_recipe("digits", [word, "grid.shape=1x2"])


@pytest.mark.parametrize("scheme", ["asynchronous", "parameter_server", "dmd2"])
def test_grid_is_refused_by_a_scheme_of_one_pair(scheme):
    config = read_recipe("digits", [f"scheme={scheme}", "grid.shape=1x2"])
    with pytest.raises(ConfigError, match=f"^grid needs training of several cells, which scheme {scheme} does not"):
        check_capabilities(build.scheme(config).holder, config.needs)


class ToyScheme(Scheme):
    """A new scheme that declares nothing but the base class's step."""

    capabilities = frozenset()

    def step(self, gan, batches): ...


class ToyStrategy(Strategy):
    """A new strategy that declares what it has."""

    capabilities = ALL - {Capability.DOUBLE_BACKWARD, Capability.PADDING}


def test_new_scheme_refuses_the_needs_of_a_game_without_code():
    gan = game(*(Player(side=side, net=nn.Linear(1, 1)) for side in Side))
    with pytest.raises(ConfigError, match=r"^penalty r1 needs double backward, which scheme test_capabilities does"):
        ToyScheme().refuse(gan, {})
    gan.d_penalties = ()
    with pytest.raises(ConfigError, match=r"^data of pairs needs an input image"):
        ToyScheme().refuse(gan, image_specs((1, 8, 8), condition=1))
    with pytest.raises(ConfigError, match=r"^rollback needs a return .* scheme test_capabilities"):
        check_capabilities(ToyScheme().holder, read_recipe("digits", ["rollback={}"]).needs)


def test_new_strategy_refuses_terms_and_settings_without_code():
    gan = game(*(Player(side=side, net=nn.Linear(1, 1)) for side in Side))
    player = Player(side=Side.D, net=nn.Linear(1, 1), strategy=ToyStrategy())
    with pytest.raises(ConfigError, match=r"^penalty r1 needs double backward, which strategy test_capabilities does"):
        check_player(PlayerOptions(), player, gan.d_penalties)
    with pytest.raises(ConfigError, match=r"^d.channel_multiple=8 needs padded channels, which strategy test_cap"):
        check_player(PlayerOptions(channel_multiple=8), player, ())
