"""The load modes: each says what a run shall hold from now on. Pure: no clock, no I/O, no log."""
