"""A model of training progress that stands in for training while an agent learns.

May import what control may import.
"""
