"""The commands of the command line program ``drumbeat``."""
