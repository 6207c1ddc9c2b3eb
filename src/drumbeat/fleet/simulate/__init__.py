"""Simulate a fleet on virtual time: real decisions about simulated workers, their cost, and how long jobs wait. Pure.

Jobs are served first come, first served. A worker is paid for from its request until it is gone, including its start. Simulated
workers never fail: only the number of workers is simulated.
"""

from drumbeat.fleet.simulate.deciding import SimulatedController as SimulatedController
from drumbeat.fleet.simulate.engine import simulate as simulate
from drumbeat.fleet.simulate.oracle import oracle_seconds as oracle_seconds
from drumbeat.fleet.simulate.values import (
    SimulatedLoad as SimulatedLoad,
    SimulatedOrders as SimulatedOrders,
    SimulatedProvider as SimulatedProvider,
    SimulatedSeries as SimulatedSeries,
    SimulationResult as SimulationResult,
)
from drumbeat.fleet.simulate.world import SimulatedWorker as SimulatedWorker, World as World
