"""The starter: workers, their life-cycle and tool surfaces, the control API and the command line. Decides nothing."""

from typing import Final

__version__: Final = "0.1.0"
