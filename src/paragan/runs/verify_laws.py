"""Laws of `paragan verify`, run on networks in this process and on ranks."""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from paragan.runs import verify_networks
from paragan.runs.verify_networks import VerifyRequest, verified_networks
from paragan.verify import laws, on_ranks
from paragan.verify.finding import LawResult
from paragan.verify.reference_run import exact_arithmetic


def run_verification(request: VerifyRequest) -> Iterator[LawResult]:
    """Yield the result of each law. Raises `ConfigError` for networks that cannot be built."""
    command = [sys.executable, "-P", "-m", verify_networks.__name__, request.to_json()]
    warnings.filterwarnings("ignore", module="torch")  # of strategies that the user did not choose
    networks = verified_networks(request)
    with tempfile.TemporaryDirectory(prefix="paragan-verify-") as folder, exact_arithmetic():
        ranks = on_ranks.RankProcesses([*command, folder], request.ranks, Path(folder))
        yield from laws.run_laws(networks, (laws.parts, laws.stopping, laws.one_is_none, ranks))
