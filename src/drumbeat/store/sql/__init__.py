"""SQL stores: the logic of the tables is written once, on named queries; a dialect file has what differs per database."""
