"""A store in a folder of plain files, for people who read, version and carry their memories."""
