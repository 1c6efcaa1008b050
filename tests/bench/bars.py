"""What the figures have to keep to: each bar is printed as it is judged."""


class Bars:
    """The bars of one part."""

    def __init__(self) -> None:
        self.are_kept = True
        """So far."""

    def at_most(self, text: str, value: float, *, limit: float) -> None:
        """``value`` must not be above ``limit``."""
        self._judge(text, value, told=f"at most {limit:g}", is_kept=value <= limit)

    def at_least(self, text: str, value: float, *, limit: float) -> None:
        """``value`` must not be below ``limit``."""
        self._judge(text, value, told=f"at least {limit:g}", is_kept=value >= limit)

    def below(self, text: str, value: float, *, limit: float) -> None:
        """``value`` must be less than ``limit``."""
        self._judge(text, value, told=f"below {limit:.2f}", is_kept=value < limit)

    def _judge(self, text: str, value: float, *, told: str, is_kept: bool) -> None:
        self.are_kept = self.are_kept and is_kept
        print(f"  {'kept  ' if is_kept else 'MISSED'} {text}: {value:.2f}, {told}")
