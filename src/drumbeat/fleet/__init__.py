"""How many workers there should be now, which are ill, and what becomes of them."""
