"""The web server: the HTTP API, live streams and the pages of the dashboard."""
