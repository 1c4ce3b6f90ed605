"""Export of a trained generator: loading, sampling, and formats for other programs."""
