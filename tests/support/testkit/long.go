package testkit

import (
	"flag"
	"testing"
)

// Long skips a slow test unless tests are selected by name with -run. target is
// the make target that runs the test; the continuous run makes that target.
func Long(t testing.TB, target string) {
	t.Helper()
	if run := flag.Lookup("test.run"); run == nil || run.Value.String() == "" {
		t.Skipf("takes long: run it by its name, or make %s", target)
	}
}
