#!/bin/sh
# The accounts and users of compose/bridge.yaml.  AccountingStorageEnforce wants them before the first job.
set -eu
SLURM_JWT=$(cat /etc/slurm/token)  # the socket for Slurm's own users is in the container of slurmdbd
export SLURM_JWT
if [ -n "$(sacctmgr -nP show assoc user=bob format=user)" ]; then
    exit 0  # made at an earlier start
fi
sacctmgr -i add cluster compose
sacctmgr -i add qos high set priority=1000
sacctmgr -i add account teama,teamb fairshare=50
sacctmgr -i add user alice account=teama qos=normal,high defaultqos=normal
sacctmgr -i add user bob account=teamb qos=normal defaultqos=normal
sacctmgr -i add user slurm account=root adminlevel=admin
