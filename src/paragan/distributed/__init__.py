"""Processes: how they start, find one another and exchange tensors."""
