"""`python -m supervisor` is `mxs`."""

from supervisor.cli.main import main

if __name__ == "__main__":
    main()
