"""Fixtures of several files here."""

import pytest
import typer

from paragan.cli import export as verb


@pytest.fixture
def exporting(capfd):
    """Runs the verb; returns what it prints."""
    app = typer.Typer()
    app.command()(verb.export)

    def call(*words) -> list[str]:
        app([str(word) for word in words], standalone_mode=False)
        return capfd.readouterr().out.splitlines()

    return call
