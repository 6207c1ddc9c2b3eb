"""Pools of jobs: pushing, claiming, retrying and explaining jobs, and starting workers for them."""
