"""Local files other than checkpoints: archives, images and animations."""
