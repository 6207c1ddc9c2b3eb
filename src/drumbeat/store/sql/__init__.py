"""Stores that speak SQL: the tables written once, over named queries; a dialect file only for what differs."""
