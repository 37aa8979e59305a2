#!/bin/bash
# A Slurm cluster of one node on this machine, with accounting, to try things on: no cgroups, no systemd.
#
#   apt-get install slurm-wlm slurmdbd munge mariadb-server     # as root, as the rest
#   examples/slurm/cluster.sh start [FOLDER]                    # prints what to export
#   examples/slurm/cluster.sh stop [FOLDER]                     # jobs that run are killed
#
# All files lie in FOLDER (/tmp/ltr-slurm); the system's own Slurm, munge and MariaDB are not touched.
# With accounting `sacct` says how a job ended: without it submitit waits for a killed job for ever.
set -eu
do=${1:-start} folder=$(realpath -m "${2:-/tmp/ltr-slurm}") node=$(hostname -s)
export SLURM_CONF=$folder/slurm.conf MYSQL_UNIX_PORT=$folder/sql/sock

end() { # the daemon of a file of its process id; waits until it is gone
    [ -s "$1" ] || return 0
    pid=$(cat "$1")
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    rm -f "$1"
}

wait_for() { # until a command answers
    for _ in $(seq 100); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done
    echo "no answer: $*; see the logs in $folder" >&2
    exit 1
}

stop() {
    [ -f "$SLURM_CONF" ] && scancel --full --user="$(id -un)" 2>/dev/null || true
    for daemon in slurmd slurmctld slurmdbd munged mariadbd; do end "$folder/$daemon.pid"; done
}

start() {
    for program in munged mariadbd slurmdbd slurmctld slurmd; do
        command -v $program >/dev/null || { echo "$program is missing: see the top of $0" >&2; exit 1; }
    done
    mkdir -p "$folder"/{sql,state,spool,munge,logs}
    chmod 755 "$folder"
    chown mysql "$folder/sql"
    chown munge "$folder/munge"
    chmod 711 "$folder/munge" # anyone may reach the socket
    [ -s "$folder/munge/key" ] || install -o munge -m 400 <(head -c 128 /dev/urandom) "$folder/munge/key"
    [ -d "$folder/sql/data" ] ||
        mariadb-install-db --user=mysql --datadir="$folder/sql/data" --auth-root-authentication-method=socket \
            >"$folder/logs/install-db" 2>&1
    [ -f "$folder/slurm.conf" ] || write_configs

    setpriv --reuid=munge --regid=munge --clear-groups munged --key-file="$folder/munge/key" \
        --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" \
        --seed-file="$folder/munge/seed"
    ln -sf munge/pid "$folder/munged.pid"
    setsid mariadbd --user=mysql --datadir="$folder/sql/data" --socket="$MYSQL_UNIX_PORT" --skip-networking \
        --pid-file="$folder/sql/pid" --innodb-buffer-pool-size=32M >"$folder/logs/mariadbd" 2>&1 &
    ln -sf sql/pid "$folder/mariadbd.pid"
    wait_for mariadb-admin --socket="$MYSQL_UNIX_PORT" ping
    slurmdbd
    wait_for sacctmgr -n list cluster
    sacctmgr -i add cluster ltr >/dev/null 2>&1 || true # there already
    slurmctld
    wait_for scontrol ping
    slurmd -N "$node"
    wait_for bash -c "sinfo -h -o %t | grep -q idle"
    echo "export SLURM_CONF=$SLURM_CONF"
}

write_configs() {
    cat >"$folder/slurmdbd.conf" <<END
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
DbdHost=localhost
DbdPort=16819
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
LogFile=$folder/logs/slurmdbd
PidFile=$folder/slurmdbd.pid
END
    chmod 600 "$folder/slurmdbd.conf" # or slurmdbd does not start
    cat >"$folder/slurm.conf" <<END
ClusterName=ltr
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# a job that was requeued waits for its old credential to expire: 2 minutes, unless told
AuthInfo=socket=$folder/munge/socket,cred_expire=10
CryptoType=crypto/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort=16819
AccountingStoragePass=$folder/munge/socket
MpiDefault=none
ReturnToService=2
KillWait=30
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/logs/slurmctld
SlurmdLogFile=$folder/logs/slurmd
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
}

case $do in
start) start ;;
stop) stop ;;
*) sed -n '2,7p' "$0"; exit 2 ;;
esac
