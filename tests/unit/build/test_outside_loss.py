"""A file of `loss=FILE.py` whose `loss` is no `pg.Loss` is refused in one line."""

import pytest

from paragan import build
from paragan.config import choose
from paragan.core.errors import ConfigError

FUNCTION = "def {}(real, fake=None):\n    return real\n"


@pytest.mark.parametrize(
    "text",
    [
        FUNCTION.format("loss"),
        FUNCTION.format("d") + "loss = (d, d)",
        "from torch import nn\nloss = nn.BCEWithLogitsLoss()",
        "loss = dict",
        "def loss(options):\n    return {}",
        "def loss(logits):\n    return logits.mean()",
    ],
)
def test_loss_of_a_file_that_is_none_is_refused_with_its_file(tmp_path, text):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        build.adversarial(choose("losses", str(path)))
    message = str(refused.value)
    assert str(path) in message and "\n" not in message
    assert "pg.Loss(d_loss, g_loss)" in message or "logits.mean" in text


@pytest.mark.parametrize("text", ["loss = pg.Loss(d, d)", "def loss(options):\n    return pg.Loss(d, d)"])
def test_loss_of_a_file_is_a_loss_or_a_function_of_its_options(tmp_path, text):
    path = tmp_path / "mine.py"
    path.write_text("import paragan as pg\n" + FUNCTION.format("d") + text)
    assert build.adversarial(choose("losses", str(path))).d(1) == 1
