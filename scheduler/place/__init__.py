"""Which nodes a workload may use, how many pods they take, and which pod goes to which granted node."""
