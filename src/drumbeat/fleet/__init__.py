"""Fleet: an autoscaler that starts, drains, checks and replaces the workers of a pool according to a policy.

It works in beats: in each beat it observes the pool, decides what to do, and acts."""
