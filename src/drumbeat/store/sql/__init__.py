"""SQL stores. The logic of the tables is written once, with named queries; a dialect has the SQL that one database needs."""
