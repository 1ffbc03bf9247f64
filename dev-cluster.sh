#!/bin/sh
# Three nodes on this machine, command by command: what `hostd dev --nodes 3`
# does, for those who want to see it. Ctrl-C stops them; started again, they
# come back with their data.
#
#   ./dev-cluster.sh
#
# HOSTD is the program (bin/hostd, built when it is missing), DATA the directory
# (hostd-cluster), PORT the first of three ports in a row (7070).
set -eu
cd "$(dirname "$0")"
HOSTD=${HOSTD:-bin/hostd}
DATA=${DATA:-hostd-cluster}
PORT=${PORT:-7070}
[ -x "$HOSTD" ] || go build -o "$HOSTD" ./cmd/hostd

a=127.0.0.1:$PORT
b=127.0.0.1:$((PORT + 1))
c=127.0.0.1:$((PORT + 2))
# Every node gets the others' addresses as seeds. Any that answers will do, and
# only until the node has joined.
common="--admin full --min-members 3 --log-level warn"

# The first start of a cluster is explicit: one node may found it, when none of
# its seeds knows one. Take --bootstrap away once the cluster is there: a node
# that lost its disk must find the others and not found another cluster.
bootstrap=
[ -e "$DATA/n1" ] || [ -e "$DATA/n2" ] || [ -e "$DATA/n3" ] || bootstrap=--bootstrap

pids=
stop() {
	trap - INT TERM EXIT
	[ -z "$pids" ] || kill $pids 2>/dev/null || true
	wait
}
trap 'stop; exit 130' INT TERM
trap stop EXIT

"$HOSTD" serve --node-id n1 --data-dir "$DATA/n1" --listen "$a" --seeds "$b,$c" $common $bootstrap &
pids="$pids $!"
"$HOSTD" serve --node-id n2 --data-dir "$DATA/n2" --listen "$b" --seeds "$a,$c" $common &
pids="$pids $!"
"$HOSTD" serve --node-id n3 --data-dir "$DATA/n3" --listen "$c" --seeds "$a,$b" $common &
pids="$pids $!"

cat <<EOF
three nodes: http://$a http://$b http://$c

  export HOSTD_ADDR=$a,$b,$c
  $HOSTD cluster status
  $HOSTD shard ls

EOF
wait
