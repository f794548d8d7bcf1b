"""Engines own time, concurrency and failure; the algorithm they drive is `hiflash.core`."""
