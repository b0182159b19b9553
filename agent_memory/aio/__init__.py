"""The async interface: the same calls, run on threads and awaited."""
