"""Triggers run a beat (one pass of a control loop) without a controller process: cron, webhook, subprocess, and others."""
