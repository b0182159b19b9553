"""Other memories, each a script that the Python of its own virtualenv runs."""
