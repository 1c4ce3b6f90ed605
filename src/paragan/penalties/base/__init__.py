"""What penalties are built from, and the loss of a perceptual network, which other rooms use."""
