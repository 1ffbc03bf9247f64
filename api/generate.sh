#!/bin/sh
# Generates api/gen from api/proto.
#
#   api/generate.sh          write the generated code
#   api/generate.sh check    fail if the committed code differs from what the
#                            protos and the pinned tools generate
#
# buf comes from npm as pinned in package-lock.json; the two Go plugins come
# from tools.mod at the root of the repository.
set -eu
cd "$(dirname "$0")"

[ -x node_modules/.bin/buf ] || npm ci --no-audit --no-fund --loglevel=error
buf=node_modules/.bin/buf

"$buf" lint
"$buf" format --diff --exit-code --exclude-path proto/buf

if [ "${1:-}" = check ]; then
	fresh=$(mktemp -d)
	trap 'rm -rf "$fresh"' EXIT
	"$buf" generate --output "$fresh"
	diff -r gen "$fresh/gen" || {
		echo "api/gen differs from what api/proto generates: run api/generate.sh" >&2
		exit 1
	}
else
	"$buf" generate --clean
fi
