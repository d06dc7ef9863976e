"""What is left of a stock after an order."""


def left_after(stock, ordered):
    """Items left of `stock` once `ordered` are taken."""
    return stock + ordered
