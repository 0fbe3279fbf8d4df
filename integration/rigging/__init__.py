"""The rig: a real Slurm and a real Kubernetes on one Debian machine, made for tests and thrown away after them.

It has two parts.

A *cache* holds everything that is slow to make and never changes: a Debian folder with Slurm in it, and the Kubernetes
programs, built from their published Go modules.  An entry is made under another name and renamed when it is complete, so each
entry is complete.

A *rig* is a set of namespaces (network, mount, PID, host name, IPC) around one process, the holder, which is process 1 in
there and does nothing but wait.  Every daemon of the rig lives inside.  So

* addresses and ports are the rig's own: two rigs run side by side with the same ports, and nothing leaves the machine;
* nothing has to be remembered to end a rig: when the holder is killed, the kernel kills every process in there, and mounts,
  links and addresses go with the last of them.  Only the cgroups of kubelets' pods are left for us to remove;
* no other process can be mistaken for a daemon of the rig: inside, only the rig's own processes exist, without pid files.

Commands that deal with daemons run this same program once more inside the namespaces, where the code is plain: start a
process, ask 127.0.0.1.  Only the standard library is used, because the rig comes before any Python environment.
"""
