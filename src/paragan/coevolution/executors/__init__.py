"""Executors: ways to train the cells of a process (a loop, one stacked program, or a recorded one)."""
