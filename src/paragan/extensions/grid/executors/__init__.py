"""Executors: train the cells of a process in a loop, as a stacked program or recorded."""
