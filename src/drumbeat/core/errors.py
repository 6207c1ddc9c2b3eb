"""Every error Drumbeat raises. Messages say what was expected, what was got, and what to do.

DrumbeatError
├── InvalidInput             what the caller gave cannot be used; nothing was changed
│   └── InvalidSettings      a setting, URL, option or configuration file is wrong
├── NotFound                 no such pool, run, worker
├── AlreadyExists            the row is there already
├── Refused                  the row has moved on; what was asked is no longer yours to do
│   ├── IllegalMove          the state diagram has no such arrow
│   ├── StaleWrite           the row is not in the state the caller saw
│   ├── Fenced               another controller holds the lease now
│   └── WorkerGone           this worker's row is closed, or belongs to another process
├── JobEnded                 a job was poisoned or cancelled: it has no result, unless it is requeued
├── StoreError               the database
│   ├── StoreUnavailable     it did not answer; trying again may help
│   ├── StoreCorrupt         it answers nonsense; trying again will not help
│   ├── StoreNotReady        it has no tables yet, or older ones: run ``drumbeat store migrate``
│   └── StoreTooNew          it was written by a newer Drumbeat
├── SpawnError               a worker could not be started, listed or stopped
│   ├── SpawnFailed          the provider said no; it is certain that nothing was started
│   └── SpawnAmbiguous       no answer: it may have been started; list before trying again
└── MissingExtra             an optional dependency is not installed
"""

from datetime import timedelta
from enum import StrEnum


class DrumbeatError(Exception):
    """The root of the tree above."""


class InvalidInput(DrumbeatError):
    """What the caller gave cannot be used."""


class InvalidSettings(InvalidInput):
    """A setting, URL, option or configuration file is wrong."""


class NotFound(DrumbeatError):
    """There is no such row."""


class AlreadyExists(DrumbeatError):
    """The row is there already."""


class Refused(DrumbeatError):
    """The row has moved on."""


class IllegalMove(Refused):
    """The state diagram has no such arrow."""


class StaleWrite(Refused):
    """The row is not in the state the caller saw."""


class Fenced(Refused):
    """Another controller holds the lease now."""


class WorkerGone(Refused):
    """This worker's row is closed, or belongs to another process."""


class JobEnded(DrumbeatError):
    """A job was poisoned or cancelled: it has no result."""


class StoreError(DrumbeatError):
    """The database failed us."""


class StoreUnavailable(StoreError):
    """The database did not answer; trying again may help."""


class StoreCorrupt(StoreError):
    """The database answers nonsense; trying again will not help."""


class StoreNotReady(StoreError):
    """The database has no tables yet, or older ones."""


class StoreTooNew(StoreError):
    """The database was written by a newer Drumbeat."""


class SpawnCause(StrEnum):
    """Why a worker did not come to be. All but the last are its provider's fault, not its own."""

    NO_CAPACITY = "no_capacity"  #: there is none of that kind now; another kind or place may have one
    BAD_REQUEST = "bad_request"  #: it will never be accepted as it is
    AUTH = "auth"  #: the key is wrong, or may not do this
    NO_MONEY = "no_money"  #: the account is empty
    RATE_LIMITED = "rate_limited"  #: too many calls
    TRANSIENT = "transient"  #: the provider failed; trying again may help
    AMBIGUOUS = "ambiguous"  #: no answer: it may have been started
    BOOT_CRASH = "boot_crash"  #: it was started, and ended before it was ready


class SpawnError(DrumbeatError):
    """A worker could not be started, listed or stopped."""

    def __init__(self, message: str, *, cause: SpawnCause = SpawnCause.TRANSIENT, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        self.retry_after = retry_after  #: how long the provider wishes to be left alone


class SpawnFailed(SpawnError):
    """The provider said no; nothing was started."""


class SpawnAmbiguous(SpawnError):
    """The provider gave no answer; list before trying again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, cause=SpawnCause.AMBIGUOUS)


class MissingExtra(DrumbeatError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency; run: pip install 'drumbeat[{extra}]'")
