//go:build !race

package engine

import "time"

// defaultCompileTimeout is Options.CompileTimeout if it is not given.
const defaultCompileTimeout = 25 * time.Second
