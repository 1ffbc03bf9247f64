package entity

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// stuck is a guest whose calls do not return until they are interrupted.
type stuck struct {
	Guest
	begun, interrupted chan struct{}
}

func (s *stuck) Load(uint32, uint64, []byte) (bool, error) {
	s.begun <- struct{}{}
	<-s.interrupted
	return false, request.ErrStopped
}

func (*stuck) About(sharding.EntityID) {}
func (s *stuck) Interrupt()            { close(s.interrupted) }
func (s *stuck) Close() error          { return nil }

// noHistory is the history of entities without records.
type noHistory struct{ historyReader }

func (noHistory) Snapshot(context.Context, sharding.ShardID, sharding.EntityID, journal.SnapshotUse, journal.Sequence) (*journal.Snapshot, error) {
	return nil, nil
}

func (noHistory) Read(context.Context, sharding.ShardID, sharding.EntityID, journal.Sequence, func(*journal.Record, journal.Hash) error) error {
	return nil
}

func (noHistory) IsAbsent(sharding.ShardID, sharding.EntityID) bool { return false }

func (noHistory) ReadRecent(ctx context.Context, shard sharding.ShardID, e sharding.EntityID, _, _ int, _ int64, _ func(int) error, fn func(*journal.Record, journal.Hash) error) (bool, error) {
	return false, noHistory{}.Read(ctx, shard, e, 0, fn)
}

func (noHistory) PendingMessages(sharding.ShardID, sharding.EntityID) (n, asOf uint64, err error) {
	return 0, 0, nil
}

// TestBusyStateCheckDropsStates checks that during a long check a few states
// wait and later states are dropped, that Offer never blocks, and that Close
// ends the check.
func TestBusyStateCheckDropsStates(t *testing.T) {
	guest := &stuck{begun: make(chan struct{}, 1), interrupted: make(chan struct{})}
	typ := &Type{Name: "slow", Instantiate: func(context.Context) (Guest, error) { return guest, nil }}
	s := NewStateChecker(StateCheckOptions{Histories: noHistory{}})
	one := func() *checkedState {
		return &checkedState{ID: sharding.EntityID{Type: "slow", ID: "x"}, Type: typ, Sequence: 1}
	}
	s.Offer(one())
	<-guest.begun
	for range 3 * checkQueue {
		s.Offer(one())
	}
	if s.Room() || len(s.queue) != checkQueue {
		t.Errorf("%d states wait, room for more: %v", len(s.queue), s.Room())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	if n := s.Stats()["slow"]; n != (StateCheckCounts{}) {
		t.Errorf("an interrupted check is counted: %+v", n)
	}
}

// TestStateChecksAreSampled checks that about one stay in memory out of Every
// is checked, and that the seed determines which.
func TestStateChecksAreSampled(t *testing.T) {
	picks := func(every int, seed uint64) string {
		s := &StateChecker{opts: StateCheckOptions{Every: every, Seed: seed}}
		var out strings.Builder
		for range 100_000 {
			out.WriteByte("01"[map[bool]int{true: 1}[s.Picks()]])
		}
		return out.String()
	}
	first := picks(1000, 1)
	if repeated := picks(1000, 1); first != repeated || first == picks(1000, 2) {
		t.Error("it is not the seed that decides")
	}
	for every, want := range map[int][2]int{1: {100_000, 100_000}, 1000: {60, 140}, -1: {0, 0}} {
		if n := strings.Count(picks(every, 7), "1"); n < want[0] || n > want[1] {
			t.Errorf("1 of %d: %d of 100,000", every, n)
		}
	}
	if (*StateChecker)(nil).Picks() {
		t.Error("nothing picks")
	}
}
