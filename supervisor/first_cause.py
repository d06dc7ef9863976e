"""Task groups wrap what was raised inside them: this finds it again. Leaf."""


def first_cause(fault: BaseException) -> BaseException:
    """The first exception inside `fault`'s groups, or `fault` itself."""
    while isinstance(fault, BaseExceptionGroup) and fault.exceptions:
        fault = fault.exceptions[0]
    return fault
