"""How the cells of a process are trained: one after another, stacked, or recorded."""
