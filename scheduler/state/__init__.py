"""The World: the facts that the scheduler has, and the records that hold these facts.

the World          tables.py, facts.py, occupancy.py, visits.py, jobs.py, world.py: a chain of base classes in this order;
                   derived.py checks the indexes
a workload         workload.py, phase.py, pod_counts.py, pod_records.py, own_keys.py, left_out.py
calls              in_flight.py, confirmation.py, backoff.py
a job              placeholder.py, job_ownership.py, named_job.py, anomalies.py, waiting_order.py, estimates.py
limits and turns   token_buckets.py, quotas.py, turns.py
other clients      earlier_binds.py (the previous process), rivals.py (another bridge), other_schedulers.py
contained errors   quarantine.py, quarantined.py, undecoded.py
"""
