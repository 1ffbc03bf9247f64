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

// noneAlive are peers that are all suspected.
type noneAlive struct{ peers }

func (noneAlive) IsAlive(sharding.NodeID) bool { return false }

// coordinating returns the coordinator of a cluster with n1, on which it runs,
// and n2, which has failed. log receives the coordinator's log.
func coordinating(t *testing.T) (l *leading, metadata *Metadata, log *bytes.Buffer) {
	t.Helper()
	metadata, _ = newMetadata(t)
	if _, err := metadata.Do(t.Context(), meta.PutMember(meta.Member{Node: "n2", Address: "b", Status: meta.StatusUp, Disk: "d2", Incarnation: 1})); err != nil {
		t.Fatal(err)
	}
	log = &bytes.Buffer{}
	m := &Member{opts: Options{
		Node: "n1", Metadata: metadata, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Peers: noneAlive{},
	}}
	m.coord.init(m)
	return &m.coord, metadata, log
}

// order submits an operation and steps until it is accepted.
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

// An accepted order that is not carried out is logged if its caller was
// already answered.
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
	l.order(t, coordinator.Operation{Kind: coordinator.OperationDrain, Node: "n1"}) // this order is in the metadata
	metadata.LeaderChanged(2, 2, false)
	l.step(t.Context())
	l.step(t.Context())
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "move shard 1 to node n2") {
		t.Errorf("an order whose coordinator is gone: %q", got)
	}
}

// The number of pending orders is bounded, and a further order is rejected
// with a reason. An order that ends makes room.
func TestOrdersAreBounded(t *testing.T) {
	l, metadata, _ := coordinating(t)
	move := coordinator.Operation{Kind: coordinator.OperationMove, Shard: 1, Node: "n2"}
	l.mu.Lock()
	l.leads() // reset the state for the new term
	for i := range coordinator.MaxOperations - 1 {
		l.given[uint64(1000+i)] = move
	}
	l.mu.Unlock()
	l.order(t, move)
	ended, end := context.WithCancel(t.Context())
	end() // an accepted order need not be waited for
	if _, err := l.operate(ended, move); !errors.Is(err, coordinator.ErrRefused) || !strings.Contains(err.Error(), "1024 operations are pending") {
		t.Errorf("one too many: %v", err)
	}
	if _, err := metadata.Do(t.Context(), meta.SetDraining("n2", 1, true)); err != nil {
		t.Fatal(err)
	}
	l.step(t.Context()) // the move order ends
	l.order(t, coordinator.Operation{Kind: coordinator.OperationResume, Node: "n2"})
}

// If the metadata rejects a command in many consecutive steps, the rejection
// is logged and steps become rarer.
func TestRepeatedRejectionsAreLogged(t *testing.T) {
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
