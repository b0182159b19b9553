"""Readers of other programs' exports and databases, and the writer for what they read."""
