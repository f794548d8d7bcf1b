"""Which client belongs to which edge: the paper's greedy rule, a faster equal one, and repairs.

May import the vocabulary and core.
"""
