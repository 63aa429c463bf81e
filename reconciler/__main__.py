"""python -m reconciler"""

from reconciler.cli.main import main

main()
