"""Recipes, and the parts that a configuration chooses by name.

May import the vocabulary, core, data, store and agents.
"""
