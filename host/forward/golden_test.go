package forward

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// TestGolden pins the bytes between nodes, because different releases must
// exchange the same bytes.
func TestGolden(t *testing.T) {
	var out strings.Builder
	for i, q := range requests {
		fmt.Fprintf(&out, "request %d %.120x\n", i, appendRequest(nil, uint64(i+1), q, time.Unix(1000, 0), says{true, true}))
	}
	ok := request.Result{Payload: []byte("reply"), Sequence: 9, EventCount: 2, Duplicate: true}
	fmt.Fprintf(&out, "result %x\n", appendResult(nil, 7, &ok, nil))
	paid := request.Result{Payload: []byte("reply"), Sequence: 10, EventCount: 1, Fuel: 1234}
	fmt.Fprintf(&out, "result %x\n", appendResult(nil, 8, &paid, nil))
	failures := []error{
		&sharding.NotLeaderError{Shard: 3, Term: 9, Leader: "n2"}, &request.RejectedError{Code: "no", Message: "never"},
		&request.SequenceMismatchError{Expected: 4, Actual: 5}, &request.GuestFaultError{Message: "trap"}, errors.New("other"),
		&request.GapError{Wanted: 7}, &request.DeniedError{Verb: "invoke", EntityType: "counter", Message: "token \"ann\" lacks it"}, &request.DeniedError{Verb: "security", Message: "no"},
		&request.GapError{Wanted: 7},
		&request.InvalidPayloadError{Violations: []request.Violation{{Field: "items[3].sku", Text: "is missing"}, {Text: "is null"}}},
	}
	for _, o := range request.Outcomes {
		if o.Err != nil {
			failures = append(failures, o.Err, fmt.Errorf("layer: %w", o.Err))
		}
	}
	for _, err := range failures {
		fmt.Fprintf(&out, "error %x\n", appendError(nil, err))
	}
	const file = "testdata/golden.txt"
	if *rewrite {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("the bytes have changed:\n%s", out.String())
	}
}
