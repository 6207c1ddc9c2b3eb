from drumbeat.client import (
    AttemptCall as AttemptCall,
    Backoff as Backoff,
    Connection as Connection,
    Job as Job,
    JobContext as JobContext,
    JobFailure as JobFailure,
    JobLogFilter as JobLogFilter,
    JobStatus as JobStatus,
    Middleware as Middleware,
    Pool as Pool,
    PushCall as PushCall,
    RateLimit as RateLimit,
    connect as connect,
    connect_blocking as connect_blocking,
)

__version__: str
__all__: list[str]
