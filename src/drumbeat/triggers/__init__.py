"""Triggers that run a beat when no controller process is running: cron, webhook, subprocess, in-loop, serverless."""
