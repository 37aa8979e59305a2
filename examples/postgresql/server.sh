#!/bin/bash
# A PostgreSQL server on this machine, to try a search on that several processes share.
#
#   apt-get install postgresql                            # or any other way to its programs
#   examples/postgresql/server.sh start [FOLDER] [PORT]   # prints the URL for storage=
#   examples/postgresql/server.sh restart [FOLDER]
#   examples/postgresql/server.sh stop [FOLDER]
#
# Its files lie in FOLDER (/tmp/ltr-postgresql) and it listens on 127.0.0.1 alone, without passwords: for
# machines that share a search, ask for a database on a server with users and passwords (~/.pgpass).
# PostgreSQL does not run as root: as root it becomes the user postgres.
set -eu
do=${1:-start} folder=$(realpath -m "${2:-/tmp/ltr-postgresql}") port=${3:-55432}
programs=$(command -v pg_ctl >/dev/null && dirname "$(command -v pg_ctl)" || ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
[ -n "$programs" ] || { echo "PostgreSQL is missing: see the top of $0" >&2; exit 1; }

as_user() {
    cd / # where postgres may be
    if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; else "$@"; fi
}
control() { as_user "$programs/pg_ctl" -D "$folder/data" -w -s -l "$folder/log" "$@"; }

case $do in
start)
    mkdir -p "$folder"
    [ "$(id -u)" != 0 ] || chown postgres "$folder"
    [ -d "$folder/data" ] ||
        as_user "$programs/initdb" -D "$folder/data" -U ltr -A trust -E UTF8 --no-sync >"$folder/initdb.log"
    control start -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories=$folder"
    echo "postgresql+psycopg2://ltr@127.0.0.1:$port/postgres"
    ;;
restart) control restart -m fast ;;
stop) control stop -m fast ;;
*) sed -n '2,11p' "$0"; exit 2 ;;
esac
