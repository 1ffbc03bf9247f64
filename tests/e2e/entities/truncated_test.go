package entities

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// ledgers is a node with ledgers whose first events were truncated.
type ledgers struct {
	*node
	before string
	total  int64 // expected total of each ledger
}

const manyLedgers = 3

func newLedgers(t *testing.T) *ledgers {
	l := &ledgers{node: &node{t: t, dir: t.TempDir(), module: "tests/e2e/entities/ledgers/before", shards: 2}}
	l.open()
	l.before = l.serves("ledger")
	l.fillLedgers(60)
	for i := range manyLedgers {
		if !l.cut(i) {
			t.Fatalf("ledger %d still has its first event", i)
		}
	}
	return l
}

// fillLedgers adds 1 to each ledger the given number of times.
func (l *ledgers) fillLedgers(times int) {
	l.t.Helper()
	for i := range manyLedgers {
		for range times {
			if _, err := l.c.Send(l.t.Context(), client.Command{EntityType: "ledger", EntityID: fmt.Sprint("l", i), Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	l.total += int64(times)
}

// cut reports whether the first events of a ledger were truncated.
func (l *ledgers) cut(i int) bool {
	for _, err := range l.c.ReadEvents(l.t.Context(), client.EventRange{EntityType: "ledger", EntityID: fmt.Sprint("l", i)}) {
		return err != nil && strings.Contains(err.Error(), "before sequence ")
	}
	return false
}

func (l *ledgers) upload(name string) (digest string) {
	l.t.Helper()
	up, err := l.c.Upload(l.t.Context(), testkit.BuildGuest(l.t, "tests/e2e/entities/ledgers/"+name), false)
	if err != nil {
		l.t.Fatal(err)
	}
	return up.Digest
}

func (l *ledgers) activate(digest string, force, accept bool) error {
	res, err := client.ActivateModule(l.t.Context(), l.c, &modulev1.ActivateModuleRequest{EntityType: "ledger", Digest: digest, Force: force, AcceptDifferences: accept})
	if err == nil && res.GetState() == modulev1.Rollout_STATE_VERIFYING {
		_, err = client.AwaitActivation(l.t.Context(), l.c, "ledger", digest)
	}
	return err
}

func (l *ledgers) back(force bool) error {
	_, err := client.RollbackModule(l.t.Context(), l.c, &modulev1.RollbackModuleRequest{EntityType: "ledger", Force: force})
	return err
}

func (l *ledgers) ask(i int) (total int64, err error) {
	r, err := l.c.Query(l.t.Context(), client.Query{EntityType: "ledger", EntityID: fmt.Sprint("l", i), Name: "total"})
	if err == nil {
		err = json.Unmarshal(r.Data, &total)
	}
	return total, err
}

// whole checks that no ledger has lost a part of its state.
func (l *ledgers) whole() {
	l.t.Helper()
	for i := range manyLedgers {
		if total, err := l.ask(i); err != nil || total != l.total {
			l.t.Errorf("ledger %d has %d, want %d: %v", i, total, l.total, err)
		}
	}
}

// faulted checks that every ledger reports that it cannot be loaded.
func (l *ledgers) faulted() {
	l.t.Helper()
	for i := range manyLedgers {
		if total, err := l.ask(i); err == nil || !strings.Contains(err.Error(), "first events were truncated") {
			l.t.Errorf("ledger %d has %d, %v, want a refusal", i, total, err)
		}
		if _, err := l.c.Send(l.t.Context(), client.Command{EntityType: "ledger", EntityID: fmt.Sprint("l", i), Name: "add", Data: []byte(`{"amount":1}`)}); err == nil {
			l.t.Errorf("ledger %d takes a command", i)
		}
	}
}

// TestStatesOfTruncatedHistoriesAreKept checks that a module that computes
// different states from the remaining snapshots is rejected. If it is forced,
// it loads none of these entities and writes nothing, so that the previous
// module finds all states when it is active again.
func TestStatesOfTruncatedHistoriesAreKept(t *testing.T) {
	l := newLedgers(t)
	renamed := l.upload("renamed")
	if err := l.activate(renamed, false, false); reason(err) != "VERIFY_FAILED" || !strings.Contains(err.Error(), "l0 at event") {
		t.Fatalf("a module that loses the state is activated: %v", err)
	}
	if now := l.serves("ledger"); now != l.before {
		t.Fatalf("%s serves", now)
	}
	l.whole()
	l.fillLedgers(1) // the shards are no longer write-paused
	if err := l.activate(renamed, true, false); err != nil {
		t.Fatal(err)
	}
	l.faulted()
	l.stop()
	l.start()
	l.faulted()
	if err := l.back(false); err != nil {
		t.Fatal(err)
	}
	l.whole()
	l.fillLedgers(6)
	l.whole()
}

// TestRollbackKeepsStatesOfTruncatedHistories checks that after a rollback,
// forced or not, the previous module never misreads states that the newer
// module has written.
func TestRollbackKeepsStatesOfTruncatedHistories(t *testing.T) {
	l := newLedgers(t)
	renamed := l.upload("renamed")
	// By accepting differences the caller says that the different states are
	// intended.
	if err := l.activate(renamed, false, true); err != nil {
		t.Fatal(err)
	}
	l.total = 0
	l.whole()
	l.fillLedgers(30)
	l.whole()
	if err := l.back(false); reason(err) != "VERIFY_FAILED" {
		t.Fatalf("a module that loses the state is back: %v", err)
	}
	l.whole()
	if err := l.back(true); err != nil {
		t.Fatal(err)
	}
	l.faulted()
	if err := l.activate(renamed, true, false); err != nil {
		t.Fatal(err)
	}
	l.whole()
	l.fillLedgers(6)
	l.whole()
}

// TestModuleThatReadsSnapshotsIsProved checks that a module that reads the
// snapshots serves with all states, also after further writes and a restart,
// and that a rollback keeps all states.
func TestModuleThatReadsSnapshotsIsProved(t *testing.T) {
	l := newLedgers(t)
	fixed := l.upload("fixed")
	if err := l.activate(fixed, false, false); err != nil {
		t.Fatal(err)
	}
	l.whole()
	l.stop()
	l.start()
	l.whole()
	l.fillLedgers(30)
	l.whole()
	if err := l.back(false); err != nil {
		t.Fatal(err)
	}
	l.whole()
	l.fillLedgers(30)
	l.whole()
}

// TestRolloutsKeepStatesOfTruncatedHistories checks that a module cannot serve
// a part whose snapshots it cannot read, and that an abort loses nothing that
// the module has written.
func TestRolloutsKeepStatesOfTruncatedHistories(t *testing.T) {
	l := newLedgers(t)
	renamed, fixed := l.upload("renamed"), l.upload("fixed")
	begin := func(digest string, accept bool) error {
		_, err := client.ActivateModule(t.Context(), l.c, &modulev1.ActivateModuleRequest{
			EntityType: "ledger", Digest: digest, AcceptDifferences: accept, Rollout: &modulev1.RolloutPlan{Prefix: "l"},
		})
		return err
	}
	change := func(action modulev1.ChangeRolloutRequest_Action, force bool) error {
		_, err := client.ChangeRollout(t.Context(), l.c, &modulev1.ChangeRolloutRequest{EntityType: "ledger", Action: action, Force: force})
		return err
	}
	if err := begin(renamed, false); reason(err) != "VERIFY_FAILED" {
		t.Fatalf("a module that loses the state serves a part: %v", err)
	}
	l.whole()
	if err := begin(fixed, false); err != nil {
		t.Fatal(err)
	}
	l.fillLedgers(30)
	l.whole()
	if err := change(modulev1.ChangeRolloutRequest_ACTION_ABORT, false); err != nil {
		t.Fatal(err)
	}
	l.whole()
	l.fillLedgers(30)
	l.whole()

	if err := begin(renamed, true); err != nil {
		t.Fatal(err)
	}
	l.total = 0
	l.fillLedgers(30)
	l.whole()
	if err := change(modulev1.ChangeRolloutRequest_ACTION_ABORT, false); err != nil {
		t.Fatal(err)
	}
	l.whole() // these ledgers stay with the newer module
	if err := change(modulev1.ChangeRolloutRequest_ACTION_ABORT, true); err != nil {
		t.Fatal(err)
	}
	l.faulted()
	if err := l.activate(renamed, true, false); err != nil {
		t.Fatal(err)
	}
	l.whole()
}
