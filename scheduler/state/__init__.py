"""The facts that the scheduler has, and the records that hold these facts."""
