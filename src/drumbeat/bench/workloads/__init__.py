"""What is sent to a database: operations, values, generated SQL and the standard workloads."""
