"""Adapters for other libraries; each module needs the library it is named after.

`importing` needs none: it reads other programs' exports.
"""
