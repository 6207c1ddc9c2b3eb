"""The hooks factory ``pool``: actions on a pool, and a worker's life around a machine's."""

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from flatmachines import HooksRegistry, MachineHooks

from drumbeat.adapters.flatmachines.actions import ACTIONS, ActionCall, Context
from drumbeat.adapters.flatmachines.expressions import condition, evaluate
from drumbeat.adapters.flatmachines.registration import DEFAULT_POOL
from drumbeat.adapters.flatmachines.session import MachineSession, PoolClaims, new_worker_id
from drumbeat.core.errors import DrumbeatError

log = logging.getLogger(__name__)

NAME = "pool"
INPUT = "drumbeat_input"  #: where a translated machine keeps its input until its context is computed
SCRATCH = "drumbeat"  #: where the values of its conditions are


def registry_of(session: MachineSession, others: Mapping[str, Callable[..., Any]] | None = None) -> HooksRegistry:
    """A registry with the ``pool`` hook of a session, and others."""
    registry = HooksRegistry()
    registry.register(NAME, partial(PoolHooks, session))
    for name, factory in (others or {}).items():
        registry.register(name, factory)
    return registry


class PoolHooks(MachineHooks):  # type: ignore[misc]
    """``hooks: pool`` or ``hooks: {name: pool, args: {dsn: …}}``. Every action merges into the context (C59).

    As ``lifecycle_hooks`` of a machine with a ``heartbeat_interval`` it registers a worker at the start, beats for it in the
    background, and ends it with the machine: as terminated, or as error with its jobs failed.
    """

    def __init__(
        self,
        session: MachineSession,
        dsn: str | None = None,
        registration_dsn: str | None = None,
        plan: Mapping[str, Any] | None = None,
    ) -> None:
        """``plan`` is what the translator notes for a state; nobody writes it by hand."""
        self._session = session
        self._plan: Mapping[str, Any] = plan or {}
        self._dsns = (dsn, registration_dsn)

    @property
    def _desk(self) -> PoolClaims:
        return self._session.desk(*self._dsns)

    async def on_machine_start(self, context: Context) -> Context:
        given = context.pop(INPUT, None) or {}
        for key, template in self._plan.get("context", {}).items():
            context[key] = evaluate(template, {"input": given})
        if "worker_id" in context and not context["worker_id"]:
            context["worker_id"] = new_worker_id(self._pool_of(context))
        if self._heartbeat is not None:
            await self._desk.enroll(context["worker_id"], self._pool_of(context), context.get("capabilities"), self._heartbeat)
        return context

    async def on_machine_end(self, context: Context, final_output: Context) -> Context:
        worker_id = context.get("worker_id")
        if self._heartbeat is not None and worker_id in self._desk.registration.own():
            await self._desk.leave(worker_id, "terminated")
        state = context["machine"]["current_state"] if "machine" in context else None
        computed = self._plan.get("outputs", {}).get(state, {})
        return {**final_output, **evaluate(computed, {"context": context})}

    async def on_state_enter(self, state_name: str, context: Context) -> Context:
        """A step is a sign of life too."""
        worker_id = context.get("worker_id")
        if worker_id in self._desk.registration.own():
            try:
                await self._desk.beat(worker_id)
            except KeyError:
                log.warning("worker %s was given up; what it says of its job will be refused", worker_id)
            except DrumbeatError as exc:
                log.warning("a heartbeat of %s was missed: %s", worker_id, exc)
        return context

    async def on_action(self, state_name: str, action_name: str, context: Context) -> Context:
        """Do one of our actions, for each item where the state says so. Others are left to other hooks."""
        if action_name not in ACTIONS:
            return context
        for name, item in self._items(context):
            context.update({name: item} if name else {})
            call = ActionCall(desk=self._desk, origin=self._session.origin, context=context, plan=self._plan)
            context.update(await ACTIONS[action_name](call))
        context.pop(self._plan.get("as", ""), None)
        return context

    async def on_state_exit(self, state_name: str, context: Context, output: Any) -> Any:
        """Write what ``output_to_context`` says of an action, and compute the conditions that are beyond the package."""
        seen = output if output is not None else dict(context)
        for key, template in self._plan.get("writes", {}).items():
            context[key] = evaluate(template, {"context": context, "output": seen, "input": context})
        if conditions := self._plan.get("conditions"):
            context[SCRATCH] = {
                key: bool(condition(text, {"context": context, "input": context})) for key, text in conditions.items()
            }
        return output

    async def on_error(self, state_name: str, error: Exception, context: Context) -> str | None:
        """Nobody recovers from it: the jobs have failed, and so has their worker (C54)."""
        if worker_id := context.get("worker_id"):
            await self._desk.fail(worker_id, f"{type(error).__name__}: {error}")
        return None

    @property
    def _heartbeat(self) -> timedelta | None:
        seconds = self._plan.get("heartbeat_interval")
        return None if seconds is None else timedelta(seconds=seconds)

    def _pool_of(self, context: Context) -> str:
        return str(context.get("pool_id") or self._plan.get("pool") or DEFAULT_POOL)

    def _items(self, context: Context) -> list[tuple[str | None, Any]]:
        if "foreach" not in self._plan:
            return [(None, None)]
        items = evaluate(self._plan["foreach"], {"context": context, "input": context})
        return [(self._plan["as"], item) for item in items or ()]
