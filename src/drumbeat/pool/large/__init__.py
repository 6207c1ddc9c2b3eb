"""Large payloads and results: stored as files or S3 objects, while the store holds a reference to each."""
