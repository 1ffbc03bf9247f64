//go:build !linux

package guest

import (
	"syscall"
	"time"
)

// limitChild does nothing here, so only the parent's timer bounds the compiler.
func limitChild(time.Duration) error { return nil }

func childAttributes() *syscall.SysProcAttr { return nil }
