"""Data types and rules that all other packages share. No I/O, standard library only."""
