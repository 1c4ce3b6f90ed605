"""Advice of the planner where memory runs out."""

import pytest

from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.extensions.planning.plan_run import advise_on_memory, plan
from paragan.runs import train
from paragan.runs.run_request import RunRequest
from paragan.runs.start import start_training

WORDS = ("model.width=4", "model.latent=8", "train.batch=8", "devices=1")
TORCH_TEXT = "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate 7"


def start(tmp_path, monkeypatch, error: Exception) -> int:
    def run(request, interrupt) -> int:
        raise error

    monkeypatch.setattr(train, "train_run", run)
    return start_training(
        RunRequest(config=read_recipe("digits", WORDS), name="digits", out=tmp_path), advise_on_memory
    )


@pytest.mark.parametrize("error", [RuntimeError(TORCH_TEXT), MemoryError()])
def test_memory_runs_out_the_plan_is_the_advice(tmp_path, monkeypatch, error):
    with pytest.raises(ConfigError) as found:
        start(tmp_path, monkeypatch, error)
    memory = plan("digits", WORDS).memory
    message = str(found.value)
    assert message.startswith("out of memory: ") and "\n" not in message
    assert f"a step needs {memory.peak_bytes / 1e9:.2f} GB in addition to the libraries" in message
    assert "pass devices=2 g.strategy=zero3 d.strategy=zero3, or pipeline for both" in message
    assert found.value.exit_code == 2


def test_other_errors_pass_unchanged(tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match=r"^shapes differ$"):
        start(tmp_path, monkeypatch, RuntimeError("shapes differ"))
