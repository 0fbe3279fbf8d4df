"""The times that the invariants allow, in seconds."""

# A bind may be in flight while its job ends: the facts of its decision are at most this old.
ON_ITS_WAY_S = 30.0
# In a simulation the bridge may not know for this time that a job ended or was lost.  A list of jobs is answered within 3 s,
# the next list begins a second later, and after up to 5 s the bridge notices that this list is lost, and does not bind any
# more.  Slurm's times are in whole seconds.
UNKNOWN_S = 10.0
# The bridge observes a bind by another scheduler within this time.  Until then it could not consider the bind (V3).
UNHEARD_S = ON_ITS_WAY_S
# A workload whose job Slurm started is bound within this time (L3).
SOON_S = 60.0
# A waiting pod shows its reason within this time (L1).  If its job waits, it does so after 10 s (Q2); many pods do it in
# turn.
REASON_S = 30.0
# Within this time after its grant, all pods of a gang are bound, or none is (V4).
GANG_S = 30.0
# A pod whose job has ended is deleted with a short grace within this time after the longest grace that counts (L4).
DELETED_S = 45.0
# A process that was killed may have requested a job as a former user of the pods, and that job may start later.  The next
# process does not know that user.  It finds and ends the job within this time after its own start, or after the policy begins
# to give some namespace that user (V1).
FORMER_JOB_S = 30.0
# The same with a name that the user has edited.  A pod that runs may show the id of the former job, which is then read with
# the jobs of pods that run (V1).
FORMER_NAME_S = 60.0
# The bridge notices within this time, some polls, that Slurm reused an id.
GIVEN_AGAIN_S = 5.0
# Slurm's times are in whole seconds, by a clock that may differ from the bridge's.
CLOCKS_S = 2.0
WHOLE_S = 1.0  # a time that Slurm shows may be so much later
