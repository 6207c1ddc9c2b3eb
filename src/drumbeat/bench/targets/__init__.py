"""Databases under test: how each is reached, described, loaded with data and driven."""
