"""Memory where other libraries look for it; each module needs the library it is named after.

`importing` needs none: it reads what others have written.
"""
