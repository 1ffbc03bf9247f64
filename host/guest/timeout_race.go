//go:build race

package guest

import "time"

// compileTimeout is four times what it is without the race detector,
// with which compiling takes ten times as long.
const compileTimeout = 100 * time.Second
