"""Runs in a worker's container: unpacks the worker's command and secrets, and executes the command. Needs only Python itself.

Its source is part of a service's specification, so it contains no dollar sign: Snowflake could take that for a variable.
"""

import base64
import hashlib
import hmac
import json
import os
import sys

TASK = "DRUMBEAT_TASK"  #: environment variable: the worker's command and environment, encrypted if there is a key
KEY = "DRUMBEAT_TASK_KEY"  #: environment variable: the key, from a SECRET object of Snowflake
NONCE, TAG = 16, 32
CANNOT_EXECUTE = 127


def encrypted(data: bytes, key: bytes, nonce: bytes) -> bytes:
    """Encrypt or decrypt data: XOR with bytes that are derived from key and nonce."""
    stream = hashlib.shake_256(b"drumbeat task stream" + hashlib.sha256(key).digest() + nonce).digest(len(data))
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")


def signed(data: bytes, key: bytes) -> bytes:
    """Return a signature (HMAC) of the data, which shows whether somebody has changed the data."""
    return hmac.digest(hashlib.sha256(b"drumbeat task tag" + key).digest(), data, "sha256")


def opened(task: str, key: str) -> bytes:
    """Return the content of a task, decrypted if there is a key. Exits if it was encrypted with another key."""
    data = base64.b64decode(task)
    if not key:
        return data
    tag, nonce, rest = data[:TAG], data[TAG : TAG + NONCE], data[TAG + NONCE :]
    if not hmac.compare_digest(tag, signed(nonce + rest, key.encode())):
        sys.exit("drumbeat: the worker's secrets cannot be decrypted: expected the same key in key_secret as in key_variable")
    return encrypted(rest, key.encode(), nonce)


def main() -> None:
    """Replace this process by the worker's command, with the worker's environment."""
    task = json.loads(opened(os.environ.pop(TASK), os.environ.pop(KEY, "")))
    os.environ.update(task["environment"])
    command = task["command"]
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as exc:
        sys.stderr.write(f"{command[0]}: {exc.strerror}\n")
        sys.exit(CANNOT_EXECUTE)


if __name__ == "__main__":
    main()
