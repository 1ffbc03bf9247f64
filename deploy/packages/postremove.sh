#!/bin/sh
# The data and the user stay, whatever is removed: only an operator deletes
# /var/lib/hostd.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
