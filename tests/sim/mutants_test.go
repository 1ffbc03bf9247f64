package sim

import (
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"testing"
)

var mutantsFlag = flag.Bool("mutants", false, "build and run the faults planted on purpose, each of which must be found")

// TestMutants builds the simulator with one fault at a time and demands that
// it is found. A harness that finds no planted fault proves nothing when it
// finds no other.
func TestMutants(t *testing.T) {
	if !*mutantsFlag {
		t.Skip("needs -mutants: builds the tests once for each fault")
	}
	mutants := []struct {
		number int
		fault  string
		seeds  int
	}{
		{1, "acknowledged before the commit", 60},
		{2, "the log is not synced", 60},
		{3, "reads answered without asking the others", 600},
		{6, "no fence, neither at proposal nor at apply", 600},
		{8, "the hard state written before its entries", 200},
		{12, "a change of members not applied on half of the replicas", 60},
		{13, "an empty log after a restart under the same replica id", 60},
		{15, "votes and append responses sent before the sync", 300},
		{17, "a log cut by a leader that has just stepped down", 600},
		{20, "a group sleeps without comparing logs and commits", 600},
		{21, "a silent node wakes nobody", 60},
		{22, "a leader that slept answers reads from what it had applied", 60},
		{30, "a snapshot acknowledged before its record is synced", 300},
		{31, "a snapshot's file removed before the store holds it", 60},
		{7, "checksums of the log not checked", 600},
		{70, "a send that is delivered again has its effect again", 60},
		{71, "a send whose outcome is unknown is taken to have arrived", 60},
		{72, "a send is acknowledged before its destination has it", 60},
		{73, "which sends were received is not part of a replica's first state", 60},
		{75, "a timer that is not set any more fires", 60},
		{74, "what was read of an outbox is skipped when its shard is led again", 600},
	}
	violation := regexp.MustCompile(`seed \d+ step \d+: (I\d+|liveness|panic): .*`)
	for _, m := range mutants {
		t.Run(fmt.Sprint(m.number), func(t *testing.T) {
			out, err := exec.Command("go", "test", fmt.Sprintf("-tags=mutant_%d", m.number), "-failfast",
				"-run=TestSeeds", ".", "-seeds", fmt.Sprint(m.seeds)).CombinedOutput()
			found := violation.Find(out)
			if err == nil || found == nil {
				t.Fatalf("%s: not found in %d seeds: %v\n%s", m.fault, m.seeds, err, out)
			}
			t.Logf("%s: %s", m.fault, found)
		})
	}
}
