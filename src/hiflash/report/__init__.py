"""Tables, figures and the live view: from results to what people look at.

May import the vocabulary, core, store, sim and control.
"""
