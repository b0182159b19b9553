"""The speed of this package, of floors and of other memories."""
