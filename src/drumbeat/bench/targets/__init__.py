"""Databases under test: how to connect to each, describe its tables, load rows and run operations."""
