"""Doing what was decided: rows first, then the provider. Every action is safe to repeat."""

from drumbeat.core.event import Target
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker
from drumbeat.fleet.model import Action, AskToDrain, SetTarget, Spawn
from drumbeat.runtime.hands import Hands
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import Store


class FleetActor:
    """One pool's controller at work."""

    def __init__(self, store: Store, spawner: Spawner, pool_id: PoolId) -> None:
        self._store = store
        self._pool_id = pool_id
        self._provider = spawner.traits.name
        self._hands = Hands(store, spawner, pool_id)

    async def act(self, action: Action, fence: Fence) -> None:
        """Do one action under the controller's fence."""
        match action:
            case Spawn():
                await self._hands.start(self._row(action), action.group_count, fence, is_new=action.is_new)
            case SetTarget():
                target = Target(connections=action.target, reason=action.reason, ramp=action.ramp)
                await self._store.workers.set_targets(self._pool_id, {action.worker_id: target}, fence=fence)
            case AskToDrain():
                leaving = [action.worker_id]
                await self._store.workers.ask_to_drain(self._pool_id, leaving, action.reason, action.within, fence=fence)
            case _:
                await self._hands.recover(action, fence)

    def _row(self, action: Spawn) -> Worker:
        return Worker(pool_id=self._pool_id, worker_id=action.worker_id, slot=action.slot, provider=self._provider)
