package backup

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/journal/archive"
	"github.com/hostd/hostd/sharding"
)

// steps is a node that records the calls of an export. Confirm fails while fails
// is above 0.
type steps struct {
	node
	seen  []string
	froze []time.Duration
	fails int
}

func (s *steps) FreezeExecutors(_ context.Context, _ string, d time.Duration) error {
	s.seen, s.froze = append(s.seen, "freeze"), append(s.froze, d)
	return nil
}

func (s *steps) Cut(_ context.Context, _ string, shards []sharding.ShardID) ([]archive.Shard, error) {
	s.seen = append(s.seen, "cut")
	var out []archive.Shard
	for _, shard := range shards {
		out = append(out, archive.Shard{ID: shard, Index: 7})
	}
	return out, nil
}

func (s *steps) Confirm(_ context.Context, shards []sharding.ShardID) ([]uint64, error) {
	s.seen = append(s.seen, "confirm")
	index := uint64(7)
	if s.fails > 0 {
		s.fails--
		index++
	}
	return slices.Repeat([]uint64{index}, len(shards)), nil
}

func (s *steps) Release(_ context.Context, _ string, cuts bool) error {
	s.seen = append(s.seen, "release")
	if cuts {
		s.seen = append(s.seen, "drop")
	}
	return nil
}

// onlyNode is a cluster with one node.
type onlyNode struct{ steps *steps }

func (onlyNode) Leader(sharding.ShardID) (sharding.NodeID, bool, bool) { return "n1", true, true }
func (o onlyNode) node(sharding.NodeID) (node, error)                  { return o.steps, nil }

// TestExportsFreezeExecutorsBriefly checks that the stores catch up before
// executors are frozen, and that only attempts after a failed attempt freeze
// them for longer.
func TestExportsFreezeExecutorsBriefly(t *testing.T) {
	s := &steps{fails: 3}
	c := &allParts{
		count: 2, logger: slog.New(slog.DiscardHandler),
		leaders: onlyNode{s}, nodes: onlyNode{s},
	}
	if _, err := c.takeCuts(t.Context(), "e"); err != nil {
		t.Fatal(err)
	}
	var want []string
	for range 3 {
		want = append(want, "cut", "freeze", "cut", "confirm", "release", "drop")
	}
	if want = append(want, "cut", "freeze", "cut", "confirm", "release"); !slices.Equal(s.seen, want) {
		t.Errorf("calls %v, want %v", s.seen, want)
	}
	if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second}; !slices.Equal(s.froze, want) {
		t.Errorf("executors were frozen for %v, want %v", s.froze, want)
	}
	s.seen, s.fails = nil, cutAttempts
	if _, err := c.takeCuts(t.Context(), "e"); !errors.Is(err, errUnsettled) {
		t.Errorf("shards that never stand still: %v", err)
	}
}
