"""Virtual time: a federation with its resources, run event by event.

May import the vocabulary, privacy, core, methods, config, data, train and execute.
"""
