from chappe.engine._memory import MemoryBudget

class EntryTable:
    slot: int
    @property
    def layout(self) -> str: ...
    def __init__(
        self, layout: str = "close", edge: bool = False, seed: int = 0, budget: MemoryBudget | None = None
    ) -> None: ...
