"""`python -m scheduler` and the console scripts."""

import sys


def main() -> None:
    """Run `dra-scheduler`."""
    from scheduler.cli.app import run

    sys.exit(run("dra-scheduler"))


def kubectl_main() -> None:
    """Run `kubectl dra`."""
    from scheduler.cli.app import run

    sys.exit(run("kubectl dra"))


if __name__ == "__main__":
    main()
