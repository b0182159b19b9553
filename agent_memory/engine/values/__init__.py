"""Values by namespace and key, beside what conversations are."""
