"""Runs the command line for ``python -m drumbeat``."""

from drumbeat.cli.main import main

main()
