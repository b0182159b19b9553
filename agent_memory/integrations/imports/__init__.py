"""Readers of exports and databases of other programs, and what writes what they read."""
