"""Starting the processes of a run, and how each of them ended."""
