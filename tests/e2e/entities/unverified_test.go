package entities

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/offline"
	"github.com/hostd/hostd/journal/archive"
	"github.com/hostd/hostd/tests/support/testkit"
)

// unverified returns the entities that may have lost a part of their state, by
// ID, with the details of the takeover.
func (l *ledgers) unverified() map[string]*entityv1.ListEntitiesResponse_Takeover {
	l.t.Helper()
	out := map[string]*entityv1.ListEntitiesResponse_Takeover{}
	for e, err := range l.c.List(l.t.Context(), &entityv1.ListEntitiesRequest{EntityType: "ledger", Status: "unverified", PageSize: 1}) {
		if err != nil {
			l.t.Fatal(err)
		}
		out[e.GetEntityId()] = e.GetTakeover()
	}
	return out
}

// earlier copies an archive as if its cluster had never recorded the result of
// a comparison.
type earlier struct {
	t *testing.T
	*archive.Writer
	to bytes.Buffer
}

func (e *earlier) Cluster(id archive.ID, text []byte) (err error) {
	var about map[string]any
	if err := json.Unmarshal(text, &about); err != nil {
		return err
	}
	about["level"] = 2
	for _, b := range about["bindings"].([]any) {
		binding := b.(map[string]any)
		for _, bound := range append(binding["history"].([]any), any(binding)) {
			delete(bound.(map[string]any), "proved")
			delete(bound.(map[string]any), "truncated")
		}
	}
	if text, err = json.Marshal(about); err == nil {
		e.Writer, err = archive.NewWriter(&e.to, id, text)
	}
	return err
}

func (e *earlier) End(archive.Shard) error { return e.Writer.End() }

// TestUnprovedTakeoversAreListed checks that an entity is listed if a second
// module has made snapshots of it and the states that this module read were
// never compared. Both a running node and the offline check list it. Other
// entities are not listed.
func TestUnprovedTakeoversAreListed(t *testing.T) {
	from := newLedgers(t)
	if found := from.unverified(); len(found) > 0 {
		t.Fatalf("of one module: %v", found)
	}
	renamed := from.upload("renamed")
	if err := from.activate(renamed, false, true); err != nil {
		t.Fatal(err)
	}
	from.fillLedgers(6) // a snapshot of the new module, and the idempotency window of the previous module
	if found := from.unverified(); len(found) > 0 {
		t.Fatalf("of a module that was compared: %v", found)
	}

	var file bytes.Buffer
	if err := from.c.Export(t.Context(), &file); err != nil {
		t.Fatal(err)
	}
	copied := &earlier{t: t}
	if _, err := archive.Read(&file, copied, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := copied.Close(); err != nil {
		t.Fatal(err)
	}
	to := from.importedFrom(&copied.to)
	found := to.unverified()
	for i := range manyLedgers {
		got := found[fmt.Sprint("l", i)]
		if got.GetModuleDigest() != from.before || got.GetSnapshotDigest() != renamed || got.GetSequence() == 0 || got.GetSnapshotSequence() <= got.GetSequence() {
			t.Errorf("ledger %d: %v", i, got)
		}
	}
	if len(found) != manyLedgers {
		t.Errorf("%d are listed", len(found))
	}
	// The offline check reads the store as of the last checkpoint of the log,
	// which a start writes.
	var said bytes.Buffer
	var notes []string
	for deadline := time.Now().Add(testkit.Patience); len(notes) == 0 && time.Now().Before(deadline); {
		to.stop()
		said.Reset()
		if faults, err := offline.Verify(t.Context(), to.dir, &said); err != nil || faults > 0 {
			t.Fatalf("%d faults, %v: %s", faults, err, said.String())
		}
		for line := range strings.Lines(said.String()) {
			if strings.Contains(line, "may lack a part of its state") {
				notes = append(notes, strings.TrimSpace(line))
			}
		}
		to.start()
	}
	if len(notes) != manyLedgers || !slices.ContainsFunc(notes, func(line string) bool {
		return strings.Contains(line, "ledger/l0 ") && strings.Contains(line, renamed) && strings.Contains(line, from.before)
	}) {
		t.Errorf("the check of the files says\n%s", said.String())
	}
}

var _ archive.Sink = (*earlier)(nil)
