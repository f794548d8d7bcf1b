"""Privacy of clients: noise, charges and sums that open nobody.

May import the vocabulary only. No module here reads a file, a clock or a network.
"""
