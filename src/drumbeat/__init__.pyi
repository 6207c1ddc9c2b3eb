from drumbeat.client import Backoff as Backoff
from drumbeat.client import Connection as Connection
from drumbeat.client import Job as Job
from drumbeat.client import JobContext as JobContext
from drumbeat.client import JobFailure as JobFailure
from drumbeat.client import JobStatus as JobStatus
from drumbeat.client import Pool as Pool
from drumbeat.client import RateLimit as RateLimit
from drumbeat.client import connect as connect
from drumbeat.client import connect_blocking as connect_blocking

__version__: str
__all__: list[str]
