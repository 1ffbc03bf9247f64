//go:build !linux

package conformance

import (
	"testing"
	"time"
)

func threadTime(b *testing.B) time.Duration {
	b.Skip("no time of a thread here")
	return 0
}
