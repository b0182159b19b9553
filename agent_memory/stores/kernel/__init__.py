"""The calls of a store, written once over a small kernel that a database implements.

To add a database, write a `Kernel` (see `contract`) and open `KernelStore(kernel)`.
"""
