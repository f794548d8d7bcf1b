"""The configuration: keys, rules between keys, dotted settings, errors.

May import the vocabulary, core, methods and data.
"""

from hiflash.config.tree import Config

__all__ = ["Config"]
