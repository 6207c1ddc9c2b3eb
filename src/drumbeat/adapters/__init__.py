"""Other people's interfaces, kept by our stores."""
