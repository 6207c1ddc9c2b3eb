"""python -m drumbeat"""

from drumbeat.cli.main import main

main()
