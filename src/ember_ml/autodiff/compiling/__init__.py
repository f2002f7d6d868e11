"""What em.jit is made of: arguments, state, what functions close over, and programs."""

__all__: list[str] = []
