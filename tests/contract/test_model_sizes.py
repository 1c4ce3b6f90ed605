"""Every model at every image size: it trains a step, or is refused."""

import pytest
import torch

from paragan.core.errors import ConfigError
from paragan.layers.update_once import begin_update
from tests.contract.test_models import MODELS, SIDES, build

LATER = [pytest.param(n, marks=pytest.mark.slow) for n in (8, 12, 16, 32, 48, 64, 96, 128, 192, 256)]


@pytest.mark.parametrize("pixels", [20, 24, 100, *LATER])
@pytest.mark.parametrize("name", MODELS)
def test_every_size_trains_a_step_or_is_refused_in_one_line(name, pixels):
    """Sizes that are 4 or 6 doubled train; a model may have a largest size."""
    shape = (1, pixels, pixels)
    if name != "mlp" and (pixels in (20, 100) or (name == "dcgan" and pixels > 128)):
        for side in SIDES:
            with pytest.raises(ConfigError, match=rf"^model {name} does not support images of {pixels}x{pixels}, .*$"):
                build(name, side, 0, shape, latent=420)
        return
    g, d = (build(name, side, 0, shape, latent=420).float() for side in SIDES)  # 420 is 2, 3, … 7 equal parts
    z = torch.randn(2, g.latent)
    real = torch.randn(2, *shape).tanh()
    condition = (torch.randn(2, *shape).tanh(),) if getattr(g, "takes_condition", False) else ()
    before = {side: [p.clone() for p in net.parameters()] for side, net in (("g", g), ("d", d))}
    for net in (d, g):
        optimizer = torch.optim.Adam(net.parameters(), 1e-3)
        begin_update(net)
        fake = g(z, None, *condition)
        logits = d(torch.cat([real, fake]), None, *(torch.cat([c, c]) for c in condition)).logits_B
        logits.sin().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    for side, net in (("g", g), ("d", d)):
        assert all(p.isfinite().all() for p in net.parameters())
        assert any(not torch.equal(a, b) for a, b in zip(before[side], net.parameters(), strict=True))
