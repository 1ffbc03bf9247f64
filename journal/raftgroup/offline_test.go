package raftgroup

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal/disk/disktest"
	"github.com/hostd/hostd/journal/raftgroup/offline"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// onePair is a state with one pair.
type onePair struct{ given bool }

func (p *onePair) Next() (key, value []byte, err error) {
	if p.given {
		return nil, nil, io.EOF
	}
	p.given = true
	return []byte{1}, []byte("state"), nil
}

func (p *onePair) Close() error { return nil }

func foundingOf(shard sharding.ShardID, replica sharding.ReplicaID) offline.Restart {
	return offline.Restart{
		Shard: shard, Replica: replica, Index: 70, Term: 9,
		State: statefile.NewWriter(statefile.Header{Shard: shard, Index: 70, Term: 9}, &onePair{}),
	}
}

// stopped opens the log of a stopped node and passes it to a function.
func stopped(fs *disktest.Crashable, do func(*recovery.Recovered, *wal.Log) error) error {
	log, err := wal.Open(fs, "wal", wal.Options{SegmentBytes: 8 << 10, Rand: func() uint64 { return 3 }})
	if err != nil {
		return err
	}
	rec, err := recovery.Recover(log)
	if err == nil {
		err = do(rec, log)
	}
	return errors.Join(err, log.Close())
}

func refound(fs *disktest.Crashable, replica sharding.ReplicaID) error {
	return stopped(fs, func(rec *recovery.Recovered, log *wal.Log) error {
		return offline.RestartGroup(rec, log, fs, "snapshots", foundingOf(1, replica))
	})
}

// worked returns a node with two groups that have applied entries, for the
// given seed.
func worked(t *testing.T, seed int) *lonely {
	t.Helper()
	n := &lonely{fs: disktest.NewCrashable(rand.New(rand.NewPCG(uint64(seed), 5))), machine: newMachine()}
	if err := errors.Join(n.open(), n.work(), n.log.Close()); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRestartGroupCanBeRepeatedAfterPowerCut cuts the power at each disk operation in turn.
// Repeating the operation always has the same result: the shard has only the
// new replica with its state, and the other group is unchanged.
func TestRestartGroupCanBeRepeatedAfterPowerCut(t *testing.T) {
	var other recovery.Replica
	for at := 0; ; at++ {
		n := worked(t, at)
		n.fs.CutAfter(at)
		cut := refound(n.fs, 500)
		n.fs.CutAfter(1 << 20)
		if cut != nil {
			n.fs.Crash()
			for range 2 {
				if err := refound(n.fs, 500); err != nil {
					t.Fatalf("cut at operation %d: the repetition: %v", at, err)
				}
			}
		}
		err := stopped(n.fs, func(rec *recovery.Recovered, _ *wal.Log) error {
			g := rec.Groups[0]
			if g.Replica != 500 || g.Snapshot != 70 || g.TruncatedIndex != 70 || g.LastIndex != 70 || g.Commit != 70 || g.Term != 9 || !slices.Equal(g.Voters, []sharding.ReplicaID{500}) || len(g.Learners) > 0 {
				t.Errorf("cut at operation %d: %+v", at, g)
			}
			if at == 0 {
				other = rec.Groups[1]
			}
			if o := rec.Groups[1]; o.Replica != other.Replica || o.LastIndex != other.LastIndex || o.Generation != 0 {
				t.Errorf("cut at operation %d: the other group is %+v, it was %+v", at, o, other)
			}
			generation := rec.Generations(n.fs, "snapshots")[0]
			f, err := generation.Install.Open()
			if err != nil {
				return err
			}
			defer f.Close()
			r, err := statefile.NewReader(f, nil)
			return errors.Join(err, r.Verify(generation.Install.Digest))
		})
		if err != nil {
			t.Fatalf("cut at operation %d: %v", at, err)
		}
		if cut == nil {
			if at < 5 {
				t.Errorf("only %d operations of the disk", at)
			}
			return
		}
	}
}

// TestRestartGroupNeedsHigherReplicaID: a restarted group works, and cannot be
// restarted with a lower replica id.
func TestRestartGroupNeedsHigherReplicaID(t *testing.T) {
	n := worked(t, 1)
	for _, step := range []struct {
		replica sharding.ReplicaID
		want    error
	}{{50, offline.ErrReplicaExists}, {500, nil}, {400, offline.ErrReplicaExists}, {600, nil}, {500, offline.ErrReplicaExists}} {
		if err := refound(n.fs, step.replica); !errors.Is(err, step.want) {
			t.Errorf("replica %d: %v, want %v", step.replica, err, step.want)
		}
	}
	var was sharding.ReplicaID
	discard := func(rec *recovery.Recovered, log *wal.Log) (err error) {
		was, err = offline.RemoveReplica(rec, log, 1)
		return err
	}
	for _, want := range []sharding.ReplicaID{600, 0} {
		if err := stopped(n.fs, discard); err != nil || was != want {
			t.Errorf("discarded %d: %v, want %d", was, err, want)
		}
	}
	if err := refound(n.fs, 600); !errors.Is(err, offline.ErrReplicaExists) {
		t.Errorf("a removed replica came back: %v", err)
	}
	err := stopped(n.fs, func(rec *recovery.Recovered, _ *wal.Log) error {
		if len(rec.Groups) != 1 || rec.Groups[0].Shard != 2 || rec.HighestRemoved() != 600 {
			t.Errorf("left: %+v, removed up to %d", rec.Groups, rec.HighestRemoved())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
