class Stack:
    mono_ns: int
    attention: bool
    wall_ns: int
    def clock(self, mono_ns: int, wall_ns: int) -> None: ...
