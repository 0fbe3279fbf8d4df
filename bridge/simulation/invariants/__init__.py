"""Checks the invariants of ARCHITECTURE 7 by the state that both clusters show, without the facts of the bridge.

checks.py           all checks together: what is checked when, and what counts as a violation
violation.py        the invariants, and what violates one
observed.py         the facts that the checks share: both clusters, and whose each job and pod is
pod_facts.py        what a pod shows
slurm_requests.py   V6 and V8: each request to Slurm
kube_requests.py    V2, V3, V5 and V7: each request to Kubernetes
job_states.py       V1 and V8: the jobs after each effect
at_rest.py          V4, L1, L2, L3 and L4: both clusters when faults ended long ago
unused_grants.py    L3: grants that are released again and again
patience.py         the times that the invariants allow
"""
