"""Asks a language model to explain a run in words. Off by default. The model gets only figures, and its answer is checked."""
