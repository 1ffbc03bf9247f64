package telemetry_test

import (
	"testing"
	"time"

	"github.com/hostd/hostd/host/telemetry"
)

// TestProcessUsageIsRead: work increases the processor time, and memory that was
// written to is resident.
func TestProcessUsageIsRead(t *testing.T) {
	before := telemetry.ReadProcess()
	if before.Memory == 0 {
		t.Errorf("%+v", before)
	}
	kept := make([]byte, 64<<20)
	for i := 0; i < len(kept); i += 512 {
		kept[i] = 1
	}
	deadline := time.Now().Add(time.Minute)
	for x := 0; telemetry.ReadProcess().CPU < before.CPU+20*time.Millisecond; x++ {
		if kept[x%len(kept)] > 1 || time.Now().After(deadline) {
			t.Fatal("no processor time is counted")
		}
	}
	if after := telemetry.ReadProcess(); after.Memory < before.Memory+32<<20 {
		t.Errorf("memory was %d and is %d", before.Memory, after.Memory)
	}
}
