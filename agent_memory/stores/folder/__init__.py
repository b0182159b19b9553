"""A store in a folder of plain files, which people can read, version and copy."""
