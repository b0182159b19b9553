"""Memory where other libraries look for it; each module needs the library it is named after."""
