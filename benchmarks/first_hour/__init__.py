"""The first hour: an empty virtualenv, and a chat that remembers across sessions."""
