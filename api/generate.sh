#!/bin/sh
# Generates api/gen and api/ts/src/gen from api/proto.
#
#   api/generate.sh            write the generated code
#   api/generate.sh check      fail if the committed code differs from what the
#                              protos and the pinned tools generate, or if the
#                              API breaks the clients of its baseline
#   api/generate.sh baseline   write the baseline: an image of the API, to be
#                              committed with each release
#
# buf and the plugin for TypeScript come from npm as pinned in
# package-lock.json; the two Go plugins come from tools.mod at the root of the
# repository.
set -eu
cd "$(dirname "$0")"

[ -x node_modules/.bin/buf ] && [ -x node_modules/.bin/protoc-gen-es ] || npm ci --no-audit --no-fund --loglevel=error
buf=node_modules/.bin/buf

baseline=baseline.binpb.gz
if [ "${1:-}" = baseline ]; then
	"$buf" build --exclude-source-info --output "$baseline"
	exit
fi

"$buf" lint
"$buf" format --diff --exit-code --exclude-path proto/buf

if [ "${1:-}" = check ]; then
	"$buf" breaking --against "$baseline" || {
		echo "api/proto breaks clients of the previous release: add fields and methods instead of changing them (docs/reference/version-policy.md)" >&2
		exit 1
	}
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
