"""Fleet: an autoscaler that starts, drains, checks and replaces the workers of a pool according to a policy."""
