"""Asking the blocks, and searching the log."""
