package conformance

import (
	"testing"

	hostd "github.com/hostd/hostd/guest-sdk/go"
	"github.com/hostd/hostd/host/cron"
	"github.com/hostd/hostd/tests/support/guests"
)

// TestValidSchedules checks that the SDK and the host accept the same
// schedules.
func TestValidSchedules(t *testing.T) {
	for _, expression := range guests.Schedules() {
		_, err := cron.Parse(expression, "")
		if got := hostd.ValidSchedule(expression); got != (err == nil) {
			t.Errorf("%q is valid: %v; the host says %v", expression, got, err)
		}
	}
}
