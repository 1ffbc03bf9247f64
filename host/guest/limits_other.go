//go:build !linux

package guest

import (
	"syscall"
	"time"
)

// limitChild leaves only the parent's timer to bound the compiler.
func limitChild(time.Duration) error { return nil }

func childAttributes() *syscall.SysProcAttr { return nil }
