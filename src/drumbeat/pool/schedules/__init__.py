"""Schedules push jobs to a pool periodically: at the times of a cron expression, or at a fixed interval."""
