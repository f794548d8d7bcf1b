"""Policies that say how stale an upload may be.

May import the vocabulary and core.
"""
