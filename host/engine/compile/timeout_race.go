//go:build race

package compile

import "time"

// DefaultTimeout is four times what it is without the race detector,
// with which compiling takes ten times as long.
const DefaultTimeout = 100 * time.Second
