"""The methods of a store, built on `Kernel`, the small interface that each database implements.

To add a database, write a `Kernel` (see `contract`) and open `KernelStore(kernel)`.
"""
