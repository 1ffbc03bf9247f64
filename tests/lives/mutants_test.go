package lives_test

import (
	"bytes"
	"flag"
	"fmt"
	"os/exec"
	"testing"
)

var mutants = flag.Bool("mutants", false, "build and run the faults planted on purpose, each of which must be found")

// TestMutants builds these tests with one fault at a time: some must fail.
func TestMutants(t *testing.T) {
	if !*mutants {
		t.Skip("needs -mutants: builds the tests once for each fault")
	}
	for number, fault := range map[int]string{
		2:  "the log is not synced",
		30: "a snapshot acknowledged before its record is synced",
		31: "a snapshot's file removed before the store holds it",
		32: "a life begins among the keys of the one before it",
	} {
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			out, err := exec.Command("go", "test", fmt.Sprintf("-tags=mutant_%d", number), "-failfast", "-timeout=300s",
				"-run=PowerCuts|Install|Snapshot|Remove", ".", "-every=4").CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte("--- FAIL")) {
				t.Fatalf("%s: not found: %v\n%s", fault, err, out)
			}
			t.Logf("%s: %.300s", fault, out)
		})
	}
}
