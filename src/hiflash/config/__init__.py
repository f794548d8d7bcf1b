"""The configuration: keys, rules between keys, dotted settings, errors.

May import the vocabulary, core and methods.
"""

from hiflash.config.tree import Config

__all__ = ["Config"]
