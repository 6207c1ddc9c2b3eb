"""Asks a language model to explain a run in words. It is off unless set up, gets figures only, and its answer is checked."""
