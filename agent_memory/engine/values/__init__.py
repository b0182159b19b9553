"""Values by namespace and key, independent of conversations."""
