"""`python -m leasetop` is the console script."""

from leasetop.cli import main

if __name__ == "__main__":
    main()
