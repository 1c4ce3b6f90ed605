"""Check of a data set before training, and its conversion into shards; above the files of `datasets/`."""
