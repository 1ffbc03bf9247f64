//go:build race

package engine

import "time"

// defaultCompileTimeout is four times what it is without the race detector,
// with which compiling takes ten times as long.
const defaultCompileTimeout = 100 * time.Second
