package cluster

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// coordinating is the coordinator of a cluster with n1, which it runs on, and
// n2, which nobody hears; log has what it logs.
func coordinating(t *testing.T) (l *leading, metadata *Metadata, log *bytes.Buffer) {
	t.Helper()
	metadata, _ = newMetadata(t)
	if _, err := metadata.Do(t.Context(), meta.PutMember(meta.Member{Node: "n2", Address: "b", Status: meta.StatusUp, Disk: "d2", Incarnation: 1})); err != nil {
		t.Fatal(err)
	}
	log = &bytes.Buffer{}
	m := &Member{opts: Options{
		Node: "n1", Metadata: metadata, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Heard: func(node sharding.NodeID) bool { return node == "n1" },
	}}
	m.coord.init(m)
	return &m.coord, metadata, log
}

// order gives an order and steps until it stands.
func (l *leading) order(t *testing.T, o coordinator.Operation) {
	t.Helper()
	stands := make(chan error)
	go func() {
		_, err := l.operate(t.Context(), o)
		stands <- err
	}()
	for {
		l.step(t.Context())
		select {
		case err := <-stands:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
}

// Who gave an order was told that it stands. What becomes of it then is logged
// where it does not come to its end.
func TestAcceptedOrdersThatEndAreLogged(t *testing.T) {
	move := coordinator.Operation{Kind: coordinator.OperationMove, Shard: 1, Node: "n2"}
	l, metadata, log := coordinating(t)
	l.order(t, move)
	if log.Len() > 0 {
		t.Fatal(log)
	}
	if _, err := metadata.Do(t.Context(), meta.SetDraining("n2", 1, true)); err != nil {
		t.Fatal(err)
	}
	l.step(t.Context())
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "move shard 1 to node n2") || !strings.Contains(got, "is being drained") {
		t.Errorf("an order that is refused later: %q", got)
	}

	l, metadata, log = coordinating(t)
	l.order(t, move)
	l.order(t, coordinator.Operation{Kind: coordinator.OperationDrain, Node: "n1"}) // which the metadata keeps
	metadata.LeaderChanged(2, 2, false)
	l.step(t.Context())
	l.step(t.Context())
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "move shard 1 to node n2") {
		t.Errorf("an order whose coordinator is gone: %q", got)
	}
}

// Orders that are not carried out are bounded, and the order that is one too
// many is refused by name. One that ends makes room.
func TestOrdersAreBounded(t *testing.T) {
	l, metadata, _ := coordinating(t)
	move := coordinator.Operation{Kind: coordinator.OperationMove, Shard: 1, Node: "n2"}
	l.mu.Lock()
	l.leads() // it begins
	for i := range coordinator.MaxOperations - 1 {
		l.given[uint64(1000+i)] = move
	}
	l.mu.Unlock()
	l.order(t, move)
	ended, end := context.WithCancel(t.Context())
	end() // an order that is taken is not waited for
	if _, err := l.operate(ended, move); !errors.Is(err, coordinator.ErrRefused) || !strings.Contains(err.Error(), "1024 orders are not carried out yet") {
		t.Errorf("one too many: %v", err)
	}
	if _, err := metadata.Do(t.Context(), meta.SetDraining("n2", 1, true)); err != nil {
		t.Fatal(err)
	}
	l.step(t.Context()) // which ends the order to move
	l.order(t, coordinator.Operation{Kind: coordinator.OperationResume, Node: "n2"})
}

// What the metadata refuses again and again is logged, and asked for less often.
func TestRefusalsThatGoOnAreLogged(t *testing.T) {
	l, _, log := coordinating(t)
	for range refusedSteps - 1 {
		l.noteRefused(meta.ErrConflict)
	}
	l.noteRefused(nil)
	l.news = true
	for range refusedSteps - 1 {
		l.noteRefused(meta.ErrConflict)
	}
	if log.Len() > 0 || !l.news {
		t.Fatalf("refusals that end: %q", log)
	}
	for range refusedSteps {
		l.noteRefused(meta.ErrConflict)
	}
	if strings.Count(log.String(), "\n") != 1 || l.news {
		t.Errorf("refusals that go on: %q, %v", log, l.news)
	}
}
