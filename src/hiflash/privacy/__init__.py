"""What protects clients from the nodes that serve them: noise, charges, sums that no edge can open.

May import the vocabulary (messages, weights, seeding, errors); of other libraries numpy, cryptography and
pycryptodome (extra `serve`), dp-accounting (extra `dp`). No module reads a file, a clock or a network.
"""
