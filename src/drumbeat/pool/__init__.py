"""Jobs that are done as often as promised, by workers that come and go."""
