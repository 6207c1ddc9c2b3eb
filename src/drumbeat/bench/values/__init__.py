"""Random values and the order of operations: what templates, targets and the driver all draw from."""
