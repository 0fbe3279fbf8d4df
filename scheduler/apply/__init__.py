"""How each kind of event changes the facts of the World.

events.py             applies one event; the table of all functions that apply events
what Kubernetes has   pods.py, kubernetes_nodes.py, namespaces.py, pod_references.py, undecoded.py
which workload        membership.py, settling.py, gang_size.py, surplus.py, free_places.py, relabelled.py
what Slurm has        job_polls.py, job_reads.py, hinted_jobs.py, reused_ids.py, slurm_nodes.py
plans                 plans.py
results of actions    results.py, submission_results.py, job_results.py, pod_results.py, node_results.py, backoff.py
all workloads         policy.py, outages.py
"""
