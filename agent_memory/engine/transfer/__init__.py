"""Sessions to files and back, deployments to other databases."""
