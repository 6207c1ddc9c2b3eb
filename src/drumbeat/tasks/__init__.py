"""Tasks: functions that are pushed as jobs with ``send_mail.push("a@x")``, and found by workers in their module."""
