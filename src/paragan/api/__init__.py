"""paragan from Python: train, load, and the manager of the ParaGAN poster."""
