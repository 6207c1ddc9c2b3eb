"""What a person sees in a browser, and what other programs call: an HTTP API, streams and pages, all over the control plane."""
