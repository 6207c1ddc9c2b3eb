"""The FlatMachines hook ``pool``: actions on a pool, and the registration of a worker while its state machine runs."""

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
INPUT = "drumbeat_input"  #: context key that holds a translated machine's input until its context is computed
SCRATCH = "drumbeat"  #: context key that holds the computed conditions of transitions


def registry_of(session: MachineSession, others: Mapping[str, Callable[..., Any]] | None = None) -> HooksRegistry:
    """Return a FlatMachines hooks registry with the hook ``pool`` of this session, and the hooks ``others``."""
    registry = HooksRegistry()
    registry.register(NAME, partial(PoolHooks, session))
    for name, factory in (others or {}).items():
        registry.register(name, factory)
    return registry


class PoolHooks(MachineHooks):  # type: ignore[misc]
    """The hook ``pool``, used as ``hooks: pool`` or ``hooks: {name: pool, args: {dsn: …}}``. It runs ``ACTIONS``.

    As ``lifecycle_hooks`` of a state machine with a ``heartbeat_interval``, it registers a worker at the start, sends
    heartbeats in the background, and at the machine's end sets the worker's status to terminated. If the machine fails, the
    status is error, and the worker's jobs fail.
    """

    def __init__(
        self,
        session: MachineSession,
        dsn: str | None = None,
        registration_dsn: str | None = None,
        plan: Mapping[str, Any] | None = None,
    ) -> None:
        """``plan``: templates, conditions and options that ``translate`` wrote for this hook. Users do not set it."""
        self._session = session
        self._plan: Mapping[str, Any] = plan or {}
        self._dsns = (dsn, registration_dsn)

    @property
    def _backends(self) -> PoolClaims:
        return self._session.backends(*self._dsns)

    async def on_machine_start(self, context: Context) -> Context:
        given = context.pop(INPUT, None) or {}
        for key, template in self._plan.get("context", {}).items():
            context[key] = evaluate(template, {"input": given})
        if "worker_id" in context and not context["worker_id"]:
            context["worker_id"] = new_worker_id(self._pool_of(context))
        if self._heartbeat is not None:
            await self._backends.enroll(
                context["worker_id"], self._pool_of(context), context.get("capabilities"), self._heartbeat
            )
        return context

    async def on_machine_end(self, context: Context, final_output: Context) -> Context:
        worker_id = context.get("worker_id")
        if self._heartbeat is not None and worker_id in self._backends.registration.own():
            await self._backends.deregister(worker_id, "terminated")
        state = context["machine"]["current_state"] if "machine" in context else None
        computed = self._plan.get("outputs", {}).get(state, {})
        return {**final_output, **evaluate(computed, {"context": context})}

    async def on_state_enter(self, state_name: str, context: Context) -> Context:
        """Send a heartbeat when the machine enters a state, in addition to the background heartbeats."""
        worker_id = context.get("worker_id")
        if worker_id in self._backends.registration.own():
            try:
                await self._backends.heartbeat(worker_id)
            except KeyError:
                log.warning("worker %s was marked lost; the result of its job will be refused", worker_id)
            except DrumbeatError as exc:
                log.warning("failed to send a heartbeat of worker %s: %s; retrying at the machine's next state", worker_id, exc)
        return context

    async def on_action(self, state_name: str, action_name: str, context: Context) -> Context:
        """Run an action of ``ACTIONS``, once for each item if the state has ``foreach``. Other actions are ignored."""
        if action_name not in ACTIONS:
            return context
        for name, item in self._items(context):
            context.update({name: item} if name else {})
            call = ActionCall(backends=self._backends, origin=self._session.origin, context=context, plan=self._plan)
            context.update(await ACTIONS[action_name](call))
        context.pop(self._plan.get("as", ""), None)
        return context

    async def on_state_exit(self, state_name: str, context: Context, output: Any) -> Any:
        """Apply the state's ``output_to_context``, and compute transition conditions that FlatMachines cannot evaluate."""
        visible = output if output is not None else dict(context)
        for key, template in self._plan.get("writes", {}).items():
            context[key] = evaluate(template, {"context": context, "output": visible, "input": context})
        if conditions := self._plan.get("conditions"):
            context[SCRATCH] = {
                key: bool(condition(text, {"context": context, "input": context})) for key, text in conditions.items()
            }
        return output

    async def on_error(self, state_name: str, error: Exception, context: Context) -> str | None:
        """Set the worker's status to error, and fail its jobs. Returns None, so that the machine ends."""
        if worker_id := context.get("worker_id"):
            await self._backends.fail(worker_id, f"{type(error).__name__}: {error}")
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
