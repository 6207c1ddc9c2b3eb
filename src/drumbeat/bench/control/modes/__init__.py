"""The load modes: each decides how many connections and workers a run needs now. Pure: no clock, no I/O, no log."""
