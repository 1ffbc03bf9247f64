package testkit

import (
	"flag"
	"testing"
)

// Long skips a test that takes longer than a person waits for all of them,
// unless tests were asked for by name, with -run. target is the target of make
// that runs it; the continuous run makes it.
func Long(t testing.TB, target string) {
	t.Helper()
	if run := flag.Lookup("test.run"); run == nil || run.Value.String() == "" {
		t.Skipf("takes long: run it by its name, or make %s", target)
	}
}
