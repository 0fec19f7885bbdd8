class EntryTable:
    slot: int
    allocations: int
    def __init__(self, layout: str = "close", edge: bool = False) -> None: ...
