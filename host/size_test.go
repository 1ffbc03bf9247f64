package host_test

import (
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/testkit"
)

// TestGetEntityTellsOfSnapshots: where the newest snapshot is, and how large
// the state in it.
func TestGetEntityTellsOfSnapshots(t *testing.T) {
	n, c := start(t, t.TempDir())
	defer stop(t, n)
	ctx := t.Context()
	if _, err := c.Upload(ctx, testkit.BuildGuest(t, "tests/entities/guest"), true); err != nil {
		t.Fatal(err)
	}
	if e, err := c.Entity(ctx, "alarm", "a"); err != nil || e.GetSnapshotSequence() != 0 || e.GetStateBytes() != 0 {
		t.Errorf("%v, %v", e, err)
	}
	eventually(t, "a snapshot", func() bool {
		if _, err := c.Send(ctx, client.Command{EntityType: "alarm", EntityID: "a", Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
			t.Fatal(err)
		}
		e, err := c.Entity(ctx, "alarm", "a")
		if err != nil {
			t.Fatal(err)
		}
		return e.GetSnapshotSequence() > 0 && e.GetSnapshotSequence() <= e.GetSequence() && e.GetStateBytes() >= uint64(len(`{"total":1}`))
	})
}
