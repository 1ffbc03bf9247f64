//go:build race

package guest

import "time"

// compileTimeout is four times as long as without the race detector, because
// the race detector makes compiling about ten times slower.
const compileTimeout = 100 * time.Second
