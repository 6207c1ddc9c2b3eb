"""Random values and the order of operations, used by templates, targets and the driver."""
