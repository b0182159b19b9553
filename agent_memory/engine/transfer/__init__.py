"""Export and import of sessions, and migration of deployments."""
