"""Addresses of remote files."""

from urllib.parse import urlsplit

_SCHEMES = ("http", "https", "s3", "gs", "az")


def is_url(path: str) -> bool:
    """Return whether this is an address of remote files, not a path."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and scheme in _SCHEMES


def secret_in_url(path: str) -> str:
    """Return what is wrong with an address that may contain a secret, without its text; else ''."""
    if not is_url(path):
        return ""
    place = urlsplit(path)
    if not ("@" in place.netloc or place.query or place.fragment):
        return ""
    return "path must not contain a user, password or query; credentials come from the environment"
