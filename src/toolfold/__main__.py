"""`python -m toolfold` is `toolfold`."""

from toolfold.cli.main import main

main()
