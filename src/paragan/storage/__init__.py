"""Local files that are not checkpoints: archives, images, films."""
