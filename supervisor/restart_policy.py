"""How often a child may be restarted before its supervisor gives up (Erlang's intensity and period). Pure."""

from collections import deque
from dataclasses import dataclass, field


@dataclass
class RestartPolicy:
    """At most `intensity` restarts within any `period_s` seconds; the clock is given by the caller."""

    intensity: int = 5
    period_s: float = 60.0
    _restarts: deque[float] = field(default_factory=deque)

    def may_restart(self, now_s: float) -> bool:
        """True, and counted, when one more restart at `now_s` stays within the bound."""
        while self._restarts and now_s - self._restarts[0] > self.period_s:
            self._restarts.popleft()
        if len(self._restarts) >= self.intensity:
            return False
        self._restarts.append(now_s)
        return True

    def delay_s(self) -> float:
        """How long to wait before the restart just counted: 0, then doubling to 5 seconds, so that no loop is hot."""
        return 0.0 if len(self._restarts) <= 1 else min(5.0, 0.1 * 2.0 ** (len(self._restarts) - 2))
