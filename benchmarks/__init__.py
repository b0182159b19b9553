"""Benchmarks and long checks, one folder for each question. They are not installed."""
