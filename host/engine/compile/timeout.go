//go:build !race

package compile

import "time"

// DefaultTimeout is the processor time that a child gets if nothing else is said.
const DefaultTimeout = 25 * time.Second
