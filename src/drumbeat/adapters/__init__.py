"""Adapters for other tools: FlatMachines state machines that use Drumbeat's stores, and beats that run in AWS Lambda."""
