"""Feature extractors, one file each: networks in whose features a score compares images."""
