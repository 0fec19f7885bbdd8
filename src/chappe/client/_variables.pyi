from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from chappe.client._core import ClientCore
from chappe.client.derived import Derived

class Variable:
    """A variable of this client; `publish` says at once whether the value was accepted."""

    owner: Any
    publisher: str
    name: str
    type: str
    rate: tuple[int, int]
    priority: int
    options: int
    id: int
    active: bool
    slowest_ns: int
    minimum_ns: int
    derived: tuple[Derived, ...]
    early: int
    def __init__(
        self,
        core: ClientCore,
        publisher: str,
        name: str,
        type: str = "float",
        rate: tuple[int, int] = (0, 1),
        priority: int = 3,
        options: int = 0,
        *,
        slowest_ns: int = 0,
        minimum_ns: int = 0,
        derived: Sequence[Derived] = (),
        encoder: Callable[[Any], bytes] | None = None,
    ) -> None: ...
    def granted(self, variable_id: int) -> None: ...
    def publish(self, value: Any, created: int | None = None) -> bool:
        """Send one value, stamped by `created` (ns since 1970 UTC) or now; False while the node is not reachable."""
    def publish_array(self, values: Any, created: Any) -> int:
        """Send a series of float64 or int64 values with int64 stamps; how many were accepted."""
    def withdraw(self) -> Coroutine[Any, Any, None]:
        """Stop publishing it. Awaitable."""

class VariableGroup:
    """Variables of one type that are published together, one value each."""

    variables: list[Variable]
    def __init__(self, variables: list[Variable]) -> None: ...
    def publish_array(self, values: Any, created: int | None = None) -> int:
        """Send `values[i]` for the i-th variable, all stamped `created` or now; how many were accepted."""
    def __len__(self) -> int: ...
