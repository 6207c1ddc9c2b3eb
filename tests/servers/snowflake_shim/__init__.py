"""Stands in front of fakesnow and corrects what it gets wrong about Snowflake. Runs in an environment of its own."""
