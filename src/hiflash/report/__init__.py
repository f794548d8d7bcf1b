"""Tables, figures and the live view: results for people to look at.

May import the vocabulary, core, store, sim and control.
"""
