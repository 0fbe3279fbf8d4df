"""The two clusters, simulated: pure state machines, their in-process transports, and a loop on virtual time.

The simulation runs the real core and executor on them; `slurm-bridge dev` serves them over HTTP.  The contract suite
holds them to what the real servers do.
"""
