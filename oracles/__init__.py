"""Executable proofs of the registry's algebra in plain float64 Python.

The letters in sources name the three documents: V is the low-rank design space, C is conditional compute, R is
routed, shared and continual adapters; what follows is the section.
"""
