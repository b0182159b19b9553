"""The async interface. Its calls run on threads."""
