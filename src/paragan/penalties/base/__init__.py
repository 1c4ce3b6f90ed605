"""Loss of a perceptual network, which other rooms use."""
