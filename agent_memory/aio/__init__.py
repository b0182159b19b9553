"""The async interface, whose calls run on threads and are awaited."""
