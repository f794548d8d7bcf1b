"""Files: written whole or not at all, read back without trusting them.

May import the vocabulary and core.
"""
