"""Every error Drumbeat raises. Messages say what was expected, what was got, and what to do.

DrumbeatError
├── InvalidInput             the caller's input cannot be used; nothing was changed
│   └── InvalidSettings      a setting, URL, option or configuration file is wrong
├── NotFound                 the pool, run, worker or other row does not exist
├── AlreadyExists            the row already exists
├── Refused                  the operation is not allowed in the current state
│   ├── IllegalMove          the state diagram does not allow this change of state
│   ├── StaleWrite           the row is not in the state the caller saw
│   ├── Fenced               another controller holds the lease now
│   └── WorkerGone           this worker's row is closed, or belongs to another process
├── JobEnded                 a job was poisoned or cancelled, so it has no result unless it is requeued
│   └── ResultExpired        the job is done, but its result is older than its pool's result_ttl
├── StoreError               the database failed
│   ├── StoreUnavailable     it did not answer; retrying may help
│   │   └── StoreLocked      a transaction of another connection has locked it for too long
│   ├── StoreCorrupt         its data cannot be read; retrying will not help
│   ├── StoreNotReady        it has no tables yet, or older ones: run ``drumbeat store migrate``
│   └── StoreTooNew          it was written by a newer Drumbeat
├── SpawnError               a worker could not be started, listed or stopped
│   ├── SpawnFailed          the provider refused; nothing was started
│   ├── SpawnAmbiguous       no answer: a worker might have been started; list the workers before retrying
│   └── Unanswered           the provider, or one of its hosts, did not answer: nothing is known about its workers
├── LargeValueError          a payload or result that is stored outside the store could not be read or written
│   ├── LargeUnavailable     the storage of large values (a folder or bucket) did not answer; retrying may help
│   └── LargeLost            a large value is missing or was changed; retrying will not help
├── LanguageModelFailed      the language model refused, did not answer, or gave no usable answer
└── MissingExtra             an optional dependency is not installed
"""

from datetime import timedelta
from enum import StrEnum


class DrumbeatError(Exception):
    """Base class of every Drumbeat error."""


class InvalidInput(DrumbeatError):
    """The caller's input cannot be used."""


class InvalidSettings(InvalidInput):
    """A setting, URL, option or configuration file is wrong."""


class NotFound(DrumbeatError):
    """The row does not exist."""


class AlreadyExists(DrumbeatError):
    """The row already exists."""


class Refused(DrumbeatError):
    """The operation is not allowed in the current state, for example because a row has changed."""


class IllegalMove(Refused):
    """The state diagram does not allow this change of state."""


class StaleWrite(Refused):
    """The row is not in the state the caller saw."""


class Fenced(Refused):
    """Another controller holds the lease now."""


class WorkerGone(Refused):
    """This process must not write for the worker: the worker has ended or has no row, or its id belongs to another process."""


class JobEnded(DrumbeatError):
    """A job was poisoned or cancelled, so it has no result."""


class ResultExpired(JobEnded):
    """A job is done, but its result is older than the ``result_ttl`` of its pool."""


class StoreError(DrumbeatError):
    """The database failed."""

    def __init__(self, *args: object, is_missing: bool = False) -> None:
        super().__init__(*args)
        self.is_missing = is_missing  #: whether there is no store yet: no file, or no tables


class StoreUnavailable(StoreError):
    """The database did not answer; retrying may help."""


class StoreLocked(StoreUnavailable):
    """A transaction of another connection has locked the database for too long; retrying may help once it has ended."""


class StoreCorrupt(StoreError):
    """The database's content cannot be read; retrying will not help."""


class StoreNotReady(StoreError):
    """The database has no tables yet, or older ones."""


class StoreTooNew(StoreError):
    """The database was written by a newer Drumbeat."""


class SpawnCause(StrEnum):
    """Why a worker could not be started. Every cause but BOOT_CRASH comes from the provider, not from the worker."""

    NO_CAPACITY = "no_capacity"  #: the provider has no machine of this kind now; another kind or place may have one
    BAD_REQUEST = "bad_request"  #: the provider will never accept the request as it is
    AUTH = "auth"  #: the API key is wrong, or lacks permission
    NO_MONEY = "no_money"  #: the account is empty
    RATE_LIMITED = "rate_limited"  #: too many API calls
    TRANSIENT = "transient"  #: the provider failed; retrying may help
    AMBIGUOUS = "ambiguous"  #: the provider gave no answer; the worker might have been started
    BOOT_CRASH = "boot_crash"  #: the worker was started, and ended before it was ready


class SpawnError(DrumbeatError):
    """A worker could not be started, listed or stopped."""

    def __init__(self, message: str, *, cause: SpawnCause = SpawnCause.TRANSIENT, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        self.retry_after = retry_after  #: how long the provider asks to wait before the next call


class SpawnFailed(SpawnError):
    """The provider refused to start a worker; nothing was started."""


class SpawnAmbiguous(SpawnError):
    """The provider gave no answer, so a worker might have been started; list the workers before retrying."""

    def __init__(self, message: str) -> None:
        super().__init__(message, cause=SpawnCause.AMBIGUOUS)


class Unanswered(SpawnError):
    """The provider, or one of its hosts, did not answer, so nothing is known about its workers: they might still run."""


class LargeValueError(DrumbeatError):
    """A payload or result that is stored outside the store could not be read or written."""


class LargeUnavailable(LargeValueError):
    """The storage of large values (a folder or bucket) did not answer; retrying may help."""


class LargeLost(LargeValueError):
    """A large value is missing or was changed; retrying will not help."""


class LanguageModelFailed(DrumbeatError):
    """The language model that should explain a run refused, did not answer, or gave no usable answer."""


class MissingExtra(DrumbeatError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency; run: pip install 'drumbeat[{extra}]'")


def first_error(error: BaseException) -> BaseException:
    """Return the first error inside an ExceptionGroup; any other error is returned as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
