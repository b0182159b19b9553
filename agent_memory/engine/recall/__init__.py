"""Queries of blocks, and the search of the log."""
