"""Recipes, and the parts that have a name in a configuration.

May import the vocabulary, core, store and agents.
"""
