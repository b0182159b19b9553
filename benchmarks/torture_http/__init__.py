"""The service under attack: `python -m benchmarks.torture_http --requests 1000000`."""
