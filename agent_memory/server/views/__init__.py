"""The forms of what the service answers."""
