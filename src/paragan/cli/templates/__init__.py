"""What `paragan new` writes. The files are read, not imported; the word mygan in them becomes the name."""
