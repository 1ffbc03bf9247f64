#!/bin/sh
# Makes the user and the data directory. A package that is upgraded restarts
# nothing: stop nodes of a cluster one at a time.
set -e
if ! getent passwd hostd >/dev/null; then
	if command -v systemd-sysusers >/dev/null; then
		systemd-sysusers hostd.conf
	else
		useradd --system --user-group --home-dir /var/lib/hostd --no-create-home --shell /usr/sbin/nologin hostd
	fi
fi
if ! [ -d /var/lib/hostd ]; then
	mkdir -p /var/lib/hostd
	chown hostd:hostd /var/lib/hostd
	chmod 0700 /var/lib/hostd
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
