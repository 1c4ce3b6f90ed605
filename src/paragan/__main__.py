"""Entry point of `python -m paragan` and of the `paragan` command."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def entry() -> None:
    """Run the command line and leave with its exit code."""
    try:
        with _swallowed_interrupts_raised():
            from paragan.cli.main import main  # not in child processes that import this file

            code = main()
    except KeyboardInterrupt:  # while modules are imported
        print("interrupted", file=sys.stderr)
        code = 130
    except ModuleNotFoundError as error:
        from paragan.hardware.installation import report_missing

        code = report_missing(error)
    sys.exit(code)


@contextmanager
def _swallowed_interrupts_raised() -> Iterator[None]:
    """Raise `KeyboardInterrupt` for an error after Ctrl-C: an import of compiled code, as NumPy's, may swallow it."""
    interrupts = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception as error:
        if interrupts:
            raise KeyboardInterrupt from error
        raise
    finally:
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    # Python put the working directory first, where a torch.py would replace the library
    if not sys.flags.safe_path:
        sys.path.append(sys.path.pop(0))
    entry()
