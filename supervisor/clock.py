"""The one place that asks the wall clock. Leaf."""

from datetime import UTC, datetime


def utc_now() -> str:
    """Now, UTC, RFC 3339 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
