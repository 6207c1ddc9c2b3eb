"""All tests of a store's job queue: pushing and claiming jobs, renewing claims, reporting outcomes, and losing workers."""

from drumbeat.store.contract.claiming import ClaimContract
from drumbeat.store.contract.excluded_types import ExcludedTypesContract
from drumbeat.store.contract.holding import HoldContract
from drumbeat.store.contract.losing import LossContract
from drumbeat.store.contract.push import PushContract
from drumbeat.store.contract.settle import SettleContract


class QueueContract(PushContract, ClaimContract, ExcludedTypesContract, SettleContract, HoldContract, LossContract):
    """All tests of ``store.queue``."""
