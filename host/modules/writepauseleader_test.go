package modules

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/signing"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// failing is a log of the metadata with one voter, which loses its leadership
// right after some of the proposed commands and is elected again later.
type failing struct {
	w        *signedWorld
	m        *cluster.Metadata
	term     sharding.Term
	index    uint64
	failures int           // number of commands with an unknown outcome
	leader   time.Duration // how long there is no leader after each such command
}

func (f *failing) elect() {
	f.term++
	f.m.LeaderChanged(f.term, 1, true)
	f.index++
	f.m.OnApplied(eventlog.ApplyResult{Index: f.index, Term: f.term, Fence: f.term, NoOp: true})
}

func (f *failing) Propose(_ sharding.ShardID, _ sharding.Term, number uint64, data []byte) error {
	e, err := journal.DecodeEntry(data)
	if err != nil {
		return err
	}
	fails := f.failures > 0
	f.failures--
	go func() {
		f.index++
		_, result, _ := f.w.state.Apply(f.index, e.Body)
		if fails {
			f.m.LeaderChanged(f.term, 0, false)
			time.Sleep(f.leader)
			f.elect()
			return
		}
		f.m.OnApplied(eventlog.ApplyResult{Index: f.index, Term: f.term, Fence: f.term, Proposal: number, Meta: result})
	}()
	return nil
}

func (f *failing) ReadIndex(_ sharding.ShardID, token uint64) error {
	go f.m.ReadConfirmed(token, f.index)
	return nil
}

// onlyNode is the node that holds every replica.
type onlyNode struct{}

func (onlyNode) Locate(sharding.ShardID, sharding.ReplicaID) (sharding.NodeID, bool) {
	return "n1", true
}

func newFailing(t *testing.T) (*failing, *writePauses) {
	w := newSignedWorld(t, signing.Off)
	f := &failing{w: w, index: w.state.View().Index()}
	f.m = cluster.NewMetadata(w.state, f.index)
	f.m.Start(f, nil, onlyNode{})
	f.elect()
	w.types.logger = slog.New(slog.DiscardHandler)
	return f, &writePauses{Service: &Service{metadata: f.m, types: w.types}}
}

// TestWritePauseSurvivesMetadataLeaderChange checks that a change of the
// metadata leader makes neither the beginning nor the end of a write pause
// fail, so that the pause does not last until it is ended as overdue.
func TestWritePauseSurvivesMetadataLeaderChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := newFailing(t)
		ctx := request.WithCaller(t.Context())
		f.failures, f.leader = 1, 500*time.Millisecond
		at, err := h.pause(ctx, "a", 1)
		b, _ := f.m.View().Activation("a")
		if err != nil || at != b.PausedSince || at == 0 {
			t.Fatalf("held since %d, %v: %+v", at, err, b)
		}
		f.failures, f.leader = 2, 3*time.Second // longer than callers wait
		h.release(ctx, context.Canceled)
		if b, _ = f.m.View().Activation("a"); b.PausedSince != 0 || b.Digest != (meta.Digest{1}) {
			t.Fatalf("it is held: %+v", b)
		}
	})
}

// TestWritePauseOfUnknownOutcomeIsReleased checks that a write pause that may have
// taken effect although the call failed is ended.
func TestWritePauseOfUnknownOutcomeIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := newFailing(t)
		ctx := request.WithCaller(t.Context())
		f.failures, f.leader = 1, 3*time.Second
		_, err := h.pause(ctx, "a", 1)
		if b, _ := f.m.View().Activation("a"); !errors.Is(err, cluster.ErrUnknownOutcome) || b.PausedSince == 0 {
			t.Fatalf("%v: %+v", err, b)
		}
		h.release(ctx, err)
		if b, _ := f.m.View().Activation("a"); b.PausedSince != 0 {
			t.Fatalf("it is held: %+v", b)
		}
	})
}
