"""Drumbeat keeps a fleet of workers in step through one database."""

from importlib.metadata import version as _version

__version__ = _version("drumbeat")
