"""Result of one law: one row of the table of `paragan verify`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from paragan.core.errors import ParaganError
from paragan.core.outside_code import reraise_as_config_error

# texts that laws share with explanations and other laws
DETERMINISTIC = "deterministic"  # a law, on which those that compare with a reference run depend
NO_REFERENCE_RUN = f"there is no reference run to compare with; see {DETERMINISTIC}"
SPECTRAL = (
    "torch.nn.utils' spectral_norm iterates at every forward, also the opponent's; use "
    "paragan.layers.spectral_norm.spectral_norm"
)


@dataclass(frozen=True, kw_only=True)
class LawResult:
    """Result of a law for one strategy or side, a row of the table of `paragan verify`.

    result: held; FAILED; exempt: the law does not apply, for `reason`; not run: an earlier law
    prevents it. difference: the largest difference; None if nothing was compared.
    """

    law: str
    strategy: str
    result: Literal["held", "FAILED", "exempt", "not run"]
    difference: float | None = None
    reason: str = ""


def passed_result(difference: float | None = None) -> LawResult:
    """Return a result that `run_law` completes with law and strategy."""
    return LawResult(law="", strategy="", result="held", difference=difference)


def failed_result(reason: str, difference: float | None = None) -> LawResult:
    """Return a result that `run_law` completes with law and strategy."""
    return LawResult(law="", strategy="", result="FAILED", difference=difference, reason=reason)


def run_law(law: str, name: str, check: Callable[[], LawResult]) -> LawResult:
    """Run one law; an exception of the user's code is a failed law."""
    try:
        with reraise_as_config_error(law):
            return replace(check(), law=law, strategy=name)
    except ParaganError as error:
        reason = str(error).removeprefix(f"{law} ")
        return LawResult(law=law, strategy=name, result="FAILED", reason=reason)
