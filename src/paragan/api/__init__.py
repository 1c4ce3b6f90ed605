"""Python interface: training, trained generators, and the manager of the ParaGAN poster."""
