"""Entry point of `python -m paragan` and of the `paragan` command."""

import signal
import sys
from types import FrameType


def entry() -> None:
    """Run the command line and leave with its exit code."""
    interrupts = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        from paragan.cli.main import main  # not in child processes that import this file

        code = main()
    except KeyboardInterrupt:  # while modules are imported
        print("interrupted", file=sys.stderr)
        code = 130
    except ModuleNotFoundError as error:
        from paragan.hardware.installation import report_missing

        code = report_missing(error)
    except Exception:
        if not interrupts:
            raise
        # an import of compiled code, such as numpy's, can swallow Ctrl-C, and what needs it fails later
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    # Python put the working directory first, where a torch.py would replace the library
    if not sys.flags.safe_path:
        sys.path.append(sys.path.pop(0))
    entry()
