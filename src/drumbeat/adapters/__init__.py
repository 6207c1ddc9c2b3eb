"""Adapters that make other tools run on Drumbeat's stores: FlatMachines and AWS Lambda."""
