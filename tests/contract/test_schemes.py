"""Every file of the schemes shelf makes steps, reports them, and can be brought to rest."""

from types import SimpleNamespace

import pytest

from paragan.build import game as build
from paragan.core import registry
from paragan.core.option_types import Choice
from paragan.core.types import Side
from paragan.parallel import none
from tests.laws.small_gan import BATCH, batches, distance, game, network, player

GIVEN = {"skipping": {"every": 1}}  # D would not play in every step otherwise


@pytest.mark.parametrize("name", registry.names("schemes"))
@pytest.mark.parametrize("per_step", [1, 2])
def test_a_scheme_plays(name, per_step):
    chosen = Choice(name, registry.options("schemes", name)(**GIVEN.get(name, {})))
    scheme = build.scheme(SimpleNamespace(scheme=chosen))
    gan = game(*(player(side, none.Strategy(), per_step=per_step if side is Side.D else 1) for side in Side))
    stream = batches()
    for step in (1, 2):
        report = scheme.step(gan, stream)
        assert (report.step, report.images) == (step, step * per_step * BATCH)
    scheme.quiesce()
    assert (gan.d.version, gan.g.version) == (2 * per_step, 2)
    assert next(stream).rows.step == 2 * per_step  # no more data than it used
    assert {"d/loss/adversarial", "d/real", "d/fake", "d/gradient_norm", "g/loss/adversarial"} <= report.read().keys()
    for seat in (gan.g, gan.d):
        assert distance(dict(seat.net.state_dict()), dict(network(seat.side).state_dict())) > 1e-4
