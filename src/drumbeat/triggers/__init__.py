"""What wakes a beat when nobody is running: cron, webhook, subprocess, in-loop, serverless."""
