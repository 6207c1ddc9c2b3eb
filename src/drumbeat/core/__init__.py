"""Words: the rows and rules everything else speaks in. No I/O, standard library only."""
