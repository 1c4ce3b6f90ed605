"""Report page and terminal view of a run, read from its record. Imports no torch."""
