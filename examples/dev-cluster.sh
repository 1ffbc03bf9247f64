#!/bin/sh
# Three nodes on this machine, command by command: what `hostd dev --nodes 3`
# does, for those who want to see it. Ctrl-C stops them; started again, they
# come back with their data.
#
#   examples/dev-cluster.sh
#
# HOSTD is the program (bin/hostd, built when it is missing), DATA the directory
# (hostd-cluster), PORT the first of six ports in a row (7070).
set -eu
cd "$(dirname "$0")/.."
HOSTD=${HOSTD:-bin/hostd}
DATA=${DATA:-hostd-cluster}
PORT=${PORT:-7070}
[ -x "$HOSTD" ] || go build -o "$HOSTD" ./cmd/hostd

a=127.0.0.1:$PORT
b=127.0.0.1:$((PORT + 1))
c=127.0.0.1:$((PORT + 2))
# Where the nodes serve each other.
pa=127.0.0.1:$((PORT + 3))
pb=127.0.0.1:$((PORT + 4))
pc=127.0.0.1:$((PORT + 5))
# Every node gets the others' addresses of that kind as seeds. Any that answers will do, and
# only until the node has joined.
common="--admin full --min-members 3 --log-level warn"

# The first start of a cluster is explicit: one node founds it, when each of its
# seeds has answered that it has none.
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

"$HOSTD" serve --node-id n1 --data-dir "$DATA/n1" --listen "$a" --peer-listen "$pa" --seeds "$pb,$pc" $common $bootstrap &
pids="$pids $!"
"$HOSTD" serve --node-id n2 --data-dir "$DATA/n2" --listen "$b" --peer-listen "$pb" --seeds "$pa,$pc" $common &
pids="$pids $!"
"$HOSTD" serve --node-id n3 --data-dir "$DATA/n3" --listen "$c" --peer-listen "$pc" --seeds "$pa,$pb" $common &
pids="$pids $!"

cat <<EOF
three nodes: http://$a http://$b http://$c

  export HOSTD_ADDR=$a,$b,$c
  $HOSTD cluster status
  $HOSTD shard ls

EOF
wait
