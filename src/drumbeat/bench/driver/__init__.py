"""The load driver: connections that send operations, and time and record each of them."""
