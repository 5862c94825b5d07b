"""Installs every engine that the tests know: `python -m tests.engines`. A kind that fails does not stop the other."""

import sys

from tests.engines import environment, node


def main() -> int:
    """0 when all is there."""
    failed = environment.main()
    try:
        node.install()
    except SystemExit as refusal:
        print(refusal, file=sys.stderr)
        failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
