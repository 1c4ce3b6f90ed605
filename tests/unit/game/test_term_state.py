"""State of terms: tensors of two terms under one name would be saved as one."""

import pytest
import torch

from paragan.core.errors import ConfigError
from paragan.game.term_state import TermState


class Owner:
    def __init__(self, name, **state):
        self.name = name
        self.state = {key.replace("__", "/"): torch.full((), value) for key, value in state.items()}


@pytest.mark.parametrize(
    "owners",
    [
        (Owner("ada", p=0.0), Owner("ada", p=1.0)),
        (Owner("mine", mean=0.0), Owner("other", mean=0.0), Owner("mine", mean=1.0, count=2.0)),
        (Owner("mine/slow", mean=0.0), Owner("mine", slow__mean=1.0)),
    ],
)
def test_two_states_of_one_name_are_refused(owners):
    with pytest.raises(ConfigError, match="rename one"):
        TermState("d", owners)


def test_terms_of_one_name_with_other_states_are_saved():
    state = TermState("d", (Owner("ada", p=0.0), Owner("ada", mean=1.0), Owner("idle"), Owner("idle")))
    assert {name: float(value) for name, value in state.items()} == {"ada/p": 0.0, "ada/mean": 1.0}
