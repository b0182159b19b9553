"""Adapters for other libraries. Each module needs the library that it is named after.

`importing` needs no other library: it reads the exports of other programs.
"""
