"""Exceptions with exit codes; a message says what is wrong, and what to do."""

import errno

_MACHINE_ERRORS = {  # the machine or file system is the cause
    # no space or permission; a path of another kind; a device, or too many files
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EEXIST, errno.ELOOP),
    *(errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.EBUSY, errno.ENOTEMPTY, errno.EXDEV, errno.ENXIO),
}
_ADVICE = {
    errno.EROFS: "; choose a place that can be written, with --out",
    errno.EISDIR: "; move that folder away, or choose another place with --out",
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), "; move that file away, or choose another place with --out"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "; free space, and run the command again"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "; permit this user to use it, or choose another place"),
    errno.EMFILE: "; raise the limit of open files (ulimit -n)",
    errno.ENAMETOOLONG: "; choose a shorter name",
    errno.EIO: "; check the disk",
}
_FILE_ERRORS = (errno.ENOENT, errno.EINVAL, errno.EFBIG)  # the machine's fault only with a file name


class ParaganError(Exception):
    """Error that the user can fix; a command prints the message and exits with `exit_code`."""

    exit_code = 2


class ConfigError(ParaganError):
    """Error for a setting that is unknown, of the wrong type, or does not fit another."""


class DataError(ParaganError):
    """Error for data that is missing, truncated or invalid.

    advice: end of the message, of what helps where a run trains on the data; `problem` is the message without it.
    """

    def __init__(self, problem: object = "", advice: str = "") -> None:
        super().__init__(f"{problem}; {advice}" if advice else problem)
        self.problem = problem
        self.advice = advice


class StorageError(DataError):
    """Error of an object store that does not respond; settings are not the cause."""

    exit_code = 75


class CheckpointError(ParaganError):
    """Error for a checkpoint or run folder that cannot be used, or is of another run."""


class DivergedError(ParaganError):
    """Error for weights that are no longer finite."""


class RankError(ParaganError):
    """Error for another rank that failed or does not answer; settings are not the cause."""

    exit_code = 75


class PeerFailedError(ParaganError):
    """Error of a rank that stopped because another failed; that one prints the reason."""

    def __init__(self, message: str, exit_code: int, rank: int, reason: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.rank = rank
        self.reason = reason or message


# Exit code of a run stopped by a signal: everything is saved, and the same command resumes.
PREEMPTED = 85


class StoppedError(ParaganError):
    """Error for a signal that came before there was anything to save."""

    exit_code = PREEMPTED


def outcome(error: BaseException) -> tuple[int, str]:
    """Return exit code and line for an error that ends the process; (1, "") for a bug."""
    match error:
        case ParaganError():
            return error.exit_code, str(error)
        case KeyboardInterrupt() | EOFError():
            return 130, ""
        case SystemExit(code=None | int()):
            return (error.code or 0) & 0xFF, ""  # type: ignore[operator]
        case OSError() if error.errno in _MACHINE_ERRORS or (error.errno in _FILE_ERRORS and error.filename):
            advice = _ADVICE.get(error.errno, "")
            return ParaganError.exit_code, f"{error.filename or 'output'}: {error.strerror}{advice}"
        case _ if is_out_of_memory(error):
            first = str(error).partition("\n")[0][:200] or type(error).__name__
            return ParaganError.exit_code, f"out of memory: {first}; lower train.batch or the model's width"
        case _:
            return 1, ""


def describe_error(error: BaseException) -> str:
    """Return an error's reason in one line; all kinds of full disk have the same words."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = " ".join(text.split()) or type(error).__name__
    return "no space left on the device" if "space left" in text or "code: 28" in text else text


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out: numpy's `MemoryError`, or a `RuntimeError` of torch."""
    words = ("allocate memory", "out of memory", "Storage size calculation overflowed")
    is_torch_error = isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    return is_torch_error or isinstance(error, MemoryError)
