"""Export of a trained generator: sampling, and formats for other programs."""
