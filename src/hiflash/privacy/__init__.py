"""What protects clients from the nodes that serve them: sums that no edge can open, and where keys come from.

May import the vocabulary (messages, weights, seeding, errors); of other libraries numpy, cryptography and
pycryptodome (extra `serve`).
"""
