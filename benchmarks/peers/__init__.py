"""Peers, each a script that is run by the Python of a virtualenv of its own."""
