"""Readers of coding agents' transcripts, one line at a time. Pure."""
