package cluster

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// committing is a log with one voter. Proposals are committed at once and
// applied by the product's state machine.
type committing struct {
	t       *testing.T
	machine *eventlog.Machine
	sink    *Metadata
	index   uint64
}

// onlyOn is the node that holds every replica.
type onlyOn sharding.NodeID

func (n onlyOn) Locate(sharding.ShardID, sharding.ReplicaID) (sharding.NodeID, bool) {
	return sharding.NodeID(n), true
}

// newMetadata returns the metadata of a node that leads its shard, for a
// cluster with n1 and shard 1 on it.
func newMetadata(t *testing.T) (*Metadata, *committing) {
	t.Helper()
	st, err := store.Open(t.TempDir(), store.Options{MemTableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	state := meta.New()
	machine, err := eventlog.Open(st, 0, eventlog.Options{Metadata: Machine{State: state}})
	if err != nil {
		t.Fatal(err)
	}
	m := NewMetadata(state, 0)
	log := &committing{t: t, machine: machine, sink: m}
	m.Start(log, nil, onlyOn("n1"))
	m.LeaderChanged(1, 1, true)
	log.commit(nil)
	n1 := meta.Member{Node: "n1", Address: "a", Status: meta.StatusUp, Disk: "d", Incarnation: 1}
	for _, c := range [][]byte{
		meta.CreateCluster(meta.Cluster{ID: "c", Format: 1, Shards: 2}, n1), meta.Place(meta.PlaceOn{Shard: 1, Nodes: []sharding.NodeID{"n1"}}),
	} {
		if _, err := m.Do(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	return m, log
}

func (l *committing) commit(data []byte) {
	l.index++
	for _, v := range l.machine.Apply(sharding.MetaShard, []journal.Committed{{Index: l.index, Term: 1, Data: data}}) {
		l.sink.OnApplied(v)
	}
}

func (l *committing) Propose(_ sharding.ShardID, _ sharding.Term, _ uint64, data []byte) error {
	go l.commit(data)
	return nil
}

func (l *committing) ReadIndex(_ sharding.ShardID, token uint64) error {
	go l.sink.ReadConfirmed(token, l.index)
	return nil
}

const later = `{"v":1,"op":"split_shard","change":{"shard":1}}`

func TestUnknownCommandIsNotProposed(t *testing.T) {
	m, log := newMetadata(t)
	before := log.index
	control := &Control{}
	control.Open(ControlOptions{Self: "n1", Metadata: m})
	for _, body := range []string{later, "{", ""} {
		if _, err := m.Do(t.Context(), []byte(body)); !errors.Is(err, meta.ErrInvalid) {
			t.Errorf("%s: %v", body, err)
		}
		if _, err := control.Propose(t.Context(), []byte(body)); !errors.Is(err, peer.ErrRefused) {
			t.Errorf("%s, from another node: %v", body, err)
		}
	}
	if log.index != before {
		t.Errorf("%d entries were written", log.index-before)
	}
	if _, err := m.Do(t.Context(), meta.PutSetting("k", nil)); err != nil {
		t.Error(err)
	}
}

// removing records a member's requests to its node's groups.
type removing struct {
	raft
	asked []string
}

func (r *removing) Statuses() ([]raftgroup.Status, error) {
	return []raftgroup.Status{{Shard: 0, Replica: 1}, {Shard: 1, Replica: 2}, {Shard: 2, Replica: 9}}, nil
}

func (r *removing) RemoveGroups(refs []raftgroup.ReplicaRef) error {
	r.asked = append(r.asked, "remove")
	return nil
}

func (r *removing) CreateGroups([]raftgroup.GroupConfig) error {
	r.asked = append(r.asked, "create")
	return nil
}

func TestCommandOfALaterReleaseStopsTheMetadata(t *testing.T) {
	m, log := newMetadata(t)
	groups := &removing{}
	member := &Member{opts: Options{Node: "n1", Disk: "d", Metadata: m, Raft: groups, Logger: slog.New(slog.DiscardHandler)}}
	member.pass(t.Context())
	if len(groups.asked) != 1 {
		t.Fatalf("replica 9 of shard 2 is in no placement: asked for %v", groups.asked)
	}
	applied := m.AppliedIndex()
	log.commit(append(journal.AppendEntryHeader(nil, journal.EntryMeta, 1, 99), later...))
	log.commit(append(journal.AppendEntryHeader(nil, journal.EntryMeta, 1, 100), meta.PutSetting("k", nil)...))

	if err := m.stopError(); !errors.Is(err, journal.ErrUnsupported) || !errors.Is(err, meta.ErrUnsupported) || !strings.Contains(err.Error(), `"split_shard"`) {
		t.Errorf("stopped: %v", err)
	}
	if _, set := m.View().Setting("k"); set || m.AppliedIndex() != applied {
		t.Errorf("it went on: applied %d, of %d", m.AppliedIndex(), applied)
	}
	member.pass(t.Context())
	if len(groups.asked) != 1 {
		t.Errorf("replicas were changed by a view of before: %v", groups.asked)
	}
	if _, leads := m.Leads(); leads {
		t.Error("it leads")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := m.Await(ctx, log.index); !errors.Is(err, journal.ErrUnsupported) {
		t.Errorf("caught up: %v", err)
	}
}

// CatchUp must not succeed with a snapshot that only a later release can read.
func TestSnapshotOfALaterReleaseStopsTheMetadata(t *testing.T) {
	m, log := newMetadata(t)
	applied := m.AppliedIndex()
	pairs := append(m.state.Dump(), meta.KV{Key: []byte("policies/later"), Value: []byte(`{"v":1,"value":{}}`)})
	err := (Machine{m.state}).Replace(log.index+10, func(put func(key, value []byte) error) error {
		for _, kv := range pairs {
			if err := put(kv.Key, kv.Value); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, journal.ErrUnsupported) || !strings.Contains(err.Error(), `"policies/later"`) {
		t.Fatalf("replaced: %v", err)
	}
	m.OnInstalled(log.index+10, &eventlog.StoppedError{Index: log.index + 10, Cause: err})
	if _, created := m.View().Cluster(); !created || m.AppliedIndex() != applied {
		t.Errorf("applied %d, of %d; what was known is gone: %v", m.AppliedIndex(), applied, !created)
	}
	if _, leads := m.Leads(); leads {
		t.Error("it leads")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := m.Await(ctx, log.index+10); !errors.Is(err, journal.ErrUnsupported) {
		t.Errorf("caught up: %v", err)
	}
	m.OnInstalled(log.index+11, nil)
	if err := m.stopError(); err != nil || m.AppliedIndex() != log.index+11 {
		t.Errorf("after another snapshot: applied %d, stopped %v", m.AppliedIndex(), err)
	}
}

// unansweringNode is a node that takes calls and becomes suspected before it
// answers.
type unansweringNode struct{ lost func() }

func (s unansweringNode) Propose(ctx context.Context, _ sharding.NodeID, _ []byte) ([]byte, error) {
	s.lost()
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s unansweringNode) ReadMeta(ctx context.Context, _ sharding.NodeID) (uint64, error) {
	s.lost()
	<-ctx.Done()
	return 0, ctx.Err()
}

func (s unansweringNode) IsAlive(sharding.NodeID) bool { return false }

// The node's own work waits for a metadata leader until its context ends. A
// caller waits only for request.LeaderPatience. A command that was sent to a
// node which then became suspected has an unknown outcome.
func TestCallersFailSoonWithoutMetadataLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMetadata(meta.New(), 0)
		m.Start(nil, unansweringNode{lost: func() { m.LeaderChanged(3, 0, false) }}, onlyOn("n2"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		took := func(call func() error) (time.Duration, error) {
			began := time.Now()
			err := call()
			return time.Since(began), err
		}
		do := func(ctx context.Context) func() error {
			return func() error { _, err := m.Do(ctx, meta.PutSetting("k", []byte("v"))); return err }
		}
		catchUp := func(ctx context.Context) func() error { return func() error { return m.CatchUp(ctx) } }
		for name, call := range map[string]func(context.Context) func() error{"change": do, "read": catchUp} {
			d, err := took(call(request.WithCaller(ctx)))
			if _, ok := errors.AsType[*sharding.NotLeaderError](err); !ok || d > time.Second {
				t.Errorf("%s for a caller: %v after %v", name, err, d)
			}
		}
		m.LeaderChanged(2, 2, false)
		if d, err := took(do(request.WithCaller(ctx))); !errors.Is(err, ErrUnknownOutcome) || d > time.Second {
			t.Errorf("a change at a node that fell silent: %v after %v", err, d)
		}
		m.LeaderChanged(4, 2, false)
		d, err := took(catchUp(request.WithCaller(ctx)))
		if _, ok := errors.AsType[*sharding.NotLeaderError](err); !ok || d > time.Second {
			t.Errorf("a read at a node that fell silent: %v after %v", err, d)
		}
		if d, err := took(do(ctx)); err == nil || d < 30*time.Second {
			t.Errorf("the node's own change: %v after %v", err, d)
		}
	})
}
