"""Whether a model answers right from a memory: one reads and answers, another judges blindly.

`python -m benchmarks.answers --data FILE --reader MODEL --judge MODEL`; see `__main__`.
"""
