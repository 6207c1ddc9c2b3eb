"""Targets, that is, databases under test: how to connect, describe tables, insert rows and run operations."""
