"""How much load a database takes, and how it bends."""
