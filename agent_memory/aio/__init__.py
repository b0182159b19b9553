"""The async face: the same calls, awaited, on threads of its own."""
