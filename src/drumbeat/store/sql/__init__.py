"""SQL stores. The logic of the tables is written once, with named queries; dialects hold the SQL that differs."""
