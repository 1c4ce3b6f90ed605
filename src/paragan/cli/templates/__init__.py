"""Templates of `paragan new`: read, not imported; the name replaces the word mygan in them."""
