//go:build !race

package guest

import "time"

// compileTimeout is the processor time that a child gets if nothing else is said.
const compileTimeout = 25 * time.Second
