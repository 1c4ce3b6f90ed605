"""Entry point of `python -m paragan` and of the `paragan` command."""

import sys


def entry() -> None:
    """Run the command line and leave with its exit code."""
    try:
        from paragan.cli.main import main  # not in child processes that import this file

        code = main()
    except KeyboardInterrupt:  # while modules are imported
        print("interrupted", file=sys.stderr)
        code = 130
    except ModuleNotFoundError as error:
        from paragan.hardware.installation import report_missing

        code = report_missing(error)
    sys.exit(code)


if __name__ == "__main__":
    # Python put the working directory first, where a torch.py would replace the library
    if not sys.flags.safe_path:
        sys.path.append(sys.path.pop(0))
    entry()
