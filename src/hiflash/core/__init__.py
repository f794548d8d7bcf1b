"""Cloud, edges and the rules they follow, as state machines without I/O.

May import the vocabulary (messages, weights, seeding, errors); of other libraries only numpy.
"""
