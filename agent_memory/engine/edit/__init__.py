"""Changes of a stored log: removal, replacement and deletion of messages."""
