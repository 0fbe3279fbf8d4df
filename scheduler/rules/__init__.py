"""The rules: decisions about one workload in each phase, about each node, and about all workloads together.

A rule returns a value: a Decision, the actions on a node, or steps.  It calls no client and changes no fact.

    one phase each        gathering.py, unsubmitted.py, queued.py, granted.py, bound.py, orphaned.py, done.py
    every phase           one_time_events.py, uninstall.py
    which job, its end    identity.py, reacquire.py
    before a submission   owners.py, missing_rights.py, submission.py, gang_layout.py, crowding.py
    before a bind         binding.py, replacements.py, volumes.py
    while pods run        running.py, deadlines.py, restore_keys.py, bypass.py
    the end of pods       end_pod.py, end_record.py, silent_nodes.py
    sentences for people  status.py, set_in_slurm.py, limits.py, pod_state.py
    nodes                 reconcile_nodes.py, node_condition.py
    all workloads         periodic.py

    from rules to a plan  decision.py: what a rule returns; scheduling_pass.py: what it reads; guard.py calls the rules;
                          driver.py and status_writes.py enter decisions in the plan
"""
