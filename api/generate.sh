#!/bin/sh
# Generates api/gen and api/ts/src/gen from api/proto.
#
#   api/generate.sh          write the generated code
#   api/generate.sh check    fail if the committed code differs from what the
#                            protos and the pinned tools generate
#
# buf and the plugin for TypeScript come from npm as pinned in
# package-lock.json; the two Go plugins come from tools.mod at the root of the
# repository.
set -eu
cd "$(dirname "$0")"

[ -x node_modules/.bin/buf ] && [ -x node_modules/.bin/protoc-gen-es ] || npm ci --no-audit --no-fund --loglevel=error
buf=node_modules/.bin/buf

"$buf" lint
"$buf" format --diff --exit-code --exclude-path proto/buf

if [ "${1:-}" = check ]; then
	fresh=$(mktemp -d)
	trap 'rm -rf "$fresh"' EXIT
	"$buf" generate --output "$fresh"
	"$buf" generate --template buf.gen.ts.yaml --output "$fresh"
	for of in gen ts/src/gen; do
		diff -r "$of" "$fresh/$of" || {
			echo "api/$of differs from what api/proto generates: run api/generate.sh" >&2
			exit 1
		}
	done
else
	"$buf" generate --clean
	"$buf" generate --template buf.gen.ts.yaml --clean
fi
