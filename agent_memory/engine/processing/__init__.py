"""What follows an update: cutting windows, feeding blocks, shortening logs."""
