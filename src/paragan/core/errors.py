"""What goes wrong, by who can mend it. A message says: found, where, expected, what to do."""


class ParaganError(Exception):
    """The user must change something; the command line prints the message alone and exits with `exit_code`."""

    exit_code = 2


class ConfigError(ParaganError):
    """A setting is unknown, of the wrong type, or does not fit another."""


class DataError(ParaganError):
    """Data is missing, truncated, or not what it claims to be."""


class CheckpointError(ParaganError):
    """A checkpoint or run folder cannot be written, read, or does not belong to this run."""


class DivergedError(ParaganError):
    """The weights are no longer finite."""


PREEMPTED = 85  # exit code of a run that was asked to stop: everything is saved, the same command goes on
