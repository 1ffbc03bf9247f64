package authorize

import (
	"context"
	"strings"

	"github.com/hostd/hostd/host/authn"
)

// maxCaller limits what Caller returns, in bytes.
const maxCaller = 256

// Caller returns a readable name of the caller: KIND:NAME.
func Caller(ctx context.Context) string {
	p := authn.Of(ctx)
	name := string(p.Kind)
	if p.Name != "" {
		name += ":" + p.Name
	}
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, name)
	return strings.ToValidUTF8(name[:min(len(name), maxCaller)], "")
}
