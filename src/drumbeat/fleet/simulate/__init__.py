"""A fleet on virtual time: real decisions about simulated workers, what they cost, and how long jobs waited. Pure.

Jobs are served first come, first served. A worker is paid for from being asked for until it is gone, its start included.
Workers here are never ill: what is judged is how many there are.
"""

from drumbeat.fleet.simulate.deciding import Deciding
from drumbeat.fleet.simulate.engine import simulate
from drumbeat.fleet.simulate.oracle import oracle_seconds
from drumbeat.fleet.simulate.values import SimulatedLoad, SimulatedOrders, SimulatedProvider, SimulatedSeries, SimulationResult
from drumbeat.fleet.simulate.world import SimulatedWorker, World

__all__ = [
    "Deciding",
    "SimulatedLoad",
    "SimulatedOrders",
    "SimulatedProvider",
    "SimulatedSeries",
    "SimulatedWorker",
    "SimulationResult",
    "World",
    "oracle_seconds",
    "simulate",
]
