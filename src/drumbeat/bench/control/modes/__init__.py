"""The load modes. Each mode decides how many connections and workers a run needs now. Pure: no clock, no I/O, no log."""
