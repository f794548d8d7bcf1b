"""Secure sums: an edge learns the sum of its clients' vectors, and no vector (docs/secure_sums.md).

The protocol is that of Bonawitz et al. (CCS 2017) on the full graph, as state machines without I/O.
May import the vocabulary and `hiflash.privacy`; of other libraries numpy, cryptography and pycryptodome.
"""
