"""Runs the emulator: python -m servers.snowflake_shim PORT."""

import sys

import uvicorn

from servers.snowflake_shim.app import Emulator

if __name__ == "__main__":
    uvicorn.run(Emulator().app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
