"""Runs in a worker's container: unpacks the worker's command and secrets, and becomes the command. Needs only Python itself.

Its text is part of a service's specification, so it contains no dollar sign: Snowflake could take that for something else.
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
    """Encrypt or decrypt: combines the data with a stream of bytes that key and nonce determine."""
    stream = hashlib.shake_256(b"drumbeat task stream" + hashlib.sha256(key).digest() + nonce).digest(len(data))
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")


def signed(data: bytes, key: bytes) -> bytes:
    """Return the signature by which a change of the data is found."""
    return hmac.digest(hashlib.sha256(b"drumbeat task tag" + key).digest(), data, "sha256")


def opened(task: str, key: str) -> bytes:
    """Return the content of a task. Exits if the key is not the one that it was encrypted with."""
    data = base64.b64decode(task)
    if not key:
        return data
    tag, nonce, rest = data[:TAG], data[TAG : TAG + NONCE], data[TAG + NONCE :]
    if not hmac.compare_digest(tag, signed(nonce + rest, key.encode())):
        sys.exit("drumbeat: the worker's secrets cannot be decrypted: expected the same key in key_secret as in key_variable")
    return encrypted(rest, key.encode(), nonce)


def main() -> None:
    """Become the worker's command, with its environment."""
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
