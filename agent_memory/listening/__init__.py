"""Sockets and connections of this package's servers, with limits against overload."""
