//go:build !race

package guest

import "time"

// compileTimeout is the default CPU time limit of a child process.
const compileTimeout = 25 * time.Second
