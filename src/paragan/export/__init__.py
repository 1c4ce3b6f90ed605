"""A trained generator as a file: loading, sampling, and formats for other programs."""
