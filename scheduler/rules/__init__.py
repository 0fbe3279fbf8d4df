"""What to do about one workload in each phase, and about all workloads in turn."""
