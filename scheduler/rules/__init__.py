"""The rules: decisions about one workload in each phase, and about all workloads in turn."""
