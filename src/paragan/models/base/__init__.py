"""Reader of networks in the folder format of diffusers, which other rooms use."""
