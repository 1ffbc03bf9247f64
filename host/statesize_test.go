package host_test

import (
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestGetEntityReportsSnapshot: GetEntity reports the position of the newest
// snapshot and the size of its state, or the size in memory if there is no
// snapshot.
func TestGetEntityReportsSnapshot(t *testing.T) {
	n, c := start(t, t.TempDir())
	defer stop(t, n)
	ctx := t.Context()
	if _, err := c.Upload(ctx, testkit.BuildGuest(t, "tests/e2e/entities/guest"), true); err != nil {
		t.Fatal(err)
	}
	if e, err := c.Entity(ctx, "alarm", "a"); err != nil || e.GetSnapshotSequence() != 0 || e.GetStateBytes() != 0 {
		t.Errorf("%v, %v", e, err)
	}
	add := func(id string) {
		t.Helper()
		if _, err := c.Send(ctx, client.Command{EntityType: "alarm", EntityID: id, Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
			t.Fatal(err)
		}
	}
	add("new")
	eventually(t, "the size of a state in memory", func() bool {
		e, err := c.Entity(ctx, "alarm", "new")
		return err == nil && e.GetSnapshotSequence() == 0 && e.GetStateBytes() == uint64(len(`{"total":1,"rung":0}`))
	})
	eventually(t, "a snapshot", func() bool {
		add("a")
		e, err := c.Entity(ctx, "alarm", "a")
		if err != nil {
			t.Fatal(err)
		}
		return e.GetSnapshotSequence() > 0 && e.GetSnapshotSequence() <= e.GetSequence() && e.GetStateBytes() >= uint64(len(`{"total":1}`))
	})
}
