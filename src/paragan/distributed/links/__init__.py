"""Links of the players' ranks: tensors and counts between two processes or threads."""
