"""Changing a log that is there: taking messages back, replacing them, deleting."""
