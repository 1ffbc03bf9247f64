#!/bin/sh
# Stops the node when the package is removed, and not when it is upgraded: apt
# says "upgrade" then, rpm says 1.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now hostd.service
	fi
	;;
esac
