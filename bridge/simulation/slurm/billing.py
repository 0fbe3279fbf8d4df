"""What a simulated job asks for, and its billing units, in Slurm's notation ("cpu=2,mem=2G,node=1,billing=2,gres/gpu=3")."""

from __future__ import annotations

from bridge.simulation.slurm.jobs import SimJob

MIB = {"M": 1.0, "G": 1024.0, "T": 1024.0**2}


def tres_asked(job: SimJob, weights: str) -> str:
    """The resources of the whole job.  weights: TRESBillingWeights of its partition; "": its CPUs are billed"""
    wanted = job.wanted
    cpus, nodes = wanted.cpus * wanted.tasks, wanted.min_nodes
    memory = wanted.memory_mib * (cpus if wanted.memory_by_cpu else nodes)
    names = dict.fromkeys(name for name, _, _ in (*wanted.gres, *wanted.task_gres))
    amounts = {"cpu": cpus, "mem": memory, "node": nodes} | {f"gres/{name}": wanted.devices(name) for name in names}
    billing = _billing(amounts, weights) if weights else cpus
    shown = {"cpu": cpus, "mem": _memory(memory), "node": nodes, "billing": int(billing)}
    shown |= {name: amount for name, amount in amounts.items() if name.startswith("gres/")}
    return ",".join(f"{name}={amount}" for name, amount in shown.items() if amount)


def _billing(amounts: dict[str, int], weights: str) -> float:
    billing = 0.0
    for item in weights.split(","):
        name, _, weight = item.partition("=")
        of_mib = MIB.get(weight[-1:].upper(), 1.0)
        billing += amounts.get(name.lower(), 0) * float(weight.rstrip("MGTmgt")) / of_mib
    return billing


def _memory(mib: int) -> str:
    return f"{mib // 1024}G" if mib and mib % 1024 == 0 else f"{mib}M"
