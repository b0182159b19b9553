"""Redis and Valkey, single servers and clusters."""
