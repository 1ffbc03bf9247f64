package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/sharding/staledisk"
)

// noLoop is a raft loop without groups.
type noLoop struct{}

func (noLoop) Receive(sharding.NodeID, []byte) {}
func (noLoop) Turns() uint64                   { return 0 }

// anyNode regards all nodes as members.
type anyNode struct{}

func (anyNode) Standing(sharding.NodeID, uint64) peer.Standing { return peer.StandingMember }
func (anyNode) Confirm(context.Context) error                  { return nil }

// unrecorded evaluates incarnations like a node that has recorded none of
// them.
type unrecorded struct{}

func (unrecorded) RecordStart(s staledisk.Start, metadata func(sharding.NodeID) uint64) (latest uint64, err error) {
	latest, _ = staledisk.Witness{}.Evaluate(s, metadata(s.Node))
	return latest, nil
}

// formerMember is a cluster of n1, from which n2 was removed with
// incarnation 7. n2 now runs with incarnation 9.
type formerMember struct {
	metadata *Metadata    // n1's metadata
	control  *Control     // n1's Control
	address  string       // n1's address
	lagging  string       // address of n3, which does not know of the removal
	silent   *atomic.Bool // n1 answers no probes
	n2       *peer.Peers
}

// laggard is n3: it knows the leader and does not know that n2 was removed.
type laggard struct{ peer.NoControl }

func (laggard) Probe(context.Context) (*peerv1.ProbeResponse, error) {
	return &peerv1.ProbeResponse{NodeId: "n3", Incarnation: 1, ClusterId: "c", Leader: "n1", Members: []*peerv1.Member{{NodeId: "n2", Incarnation: 7, DiskId: "e"}}}, nil
}

// Entry returns the parameters with which n2 joins.
func (f *formerMember) Entry() Entry {
	return Entry{Peers: f.n2, Self: meta.Member{Node: "n2", Disk: "e"}, PeersAt: "b:2", Seeds: []string{f.address, f.lagging}, Logger: slog.New(slog.DiscardHandler)}
}

// votesWrongly is a raft loop that must not vote.
type votesWrongly struct{ t *testing.T }

func (v votesWrongly) Release() error {
	v.t.Error("the older copy votes")
	return nil
}

// endings are the reasons why a node had to stop.
type endings chan error

func (e endings) End(err error) { e <- err }
func (endings) Stopping() bool  { return false }

// newFormerMember removes n2 as a dead node or, if leaves is set, because it
// was asked to leave.
func newFormerMember(t *testing.T, leaves bool) *formerMember {
	t.Helper()
	m, _ := newMetadata(t)
	on := network.TCP{}
	recovered := make(chan struct{})
	close(recovered)
	control := &Control{}
	control.Name("n1", 1, "c")
	said := answers{"b:2": {NodeId: "n2", Incarnation: 9, ClusterId: "c"}}
	control.Open(ControlOptions{Self: "n1", Metadata: m, Starts: unrecorded{}, Recovered: recovered, Peers: probes{together: said}})
	connect := func(id sharding.NodeID, start uint64, control peer.Control) *peer.Peers {
		p, err := peer.New(peer.Options{Self: id, Incarnation: start, Cluster: "c", Network: on, Control: control, Raft: noLoop{}})
		if err != nil {
			t.Fatal(err)
		}
		p.SetMembers(anyNode{})
		t.Cleanup(func() {
			if err := p.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return p
	}
	serve := func(p *peer.Peers, silent *atomic.Bool) (address string) {
		listener, err := on.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		mux, protocols := http.NewServeMux(), new(http.Protocols)
		path, handler := p.Handler()
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if silent.Load() && r.URL.Path == peerv1connect.PeerServiceProbeProcedure {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			handler.ServeHTTP(w, r)
		})
		protocols.SetUnencryptedHTTP2(true)
		server := &http.Server{Handler: mux, Protocols: protocols}
		go server.Serve(listener)
		t.Cleanup(func() { server.Close() })
		return listener.Addr().String()
	}
	silent := new(atomic.Bool)
	address, lagging := serve(connect("n1", 1, control), silent), serve(connect("n3", 1, laggard{}), new(atomic.Bool))

	former := &formerMember{m, control, address, lagging, silent, connect("n2", 9, peer.NoControl{})}
	self := meta.Speaker{Node: "n1", Incarnation: 1, Speaks: sharding.SupportedVersions}
	former.do(t, meta.RaiseClusterVersion(sharding.VersionFormerMembers, self))
	former.join(t, 7)
	if leaves {
		former.do(t, meta.SetStatus("n2", 7, meta.StatusLeaving))
	} else {
		former.do(t, meta.SetStatus("n2", 7, meta.StatusDown))
	}
	former.removeMember(t)
	return former
}

func (f *formerMember) do(t *testing.T, commands ...[]byte) {
	t.Helper()
	for _, command := range commands {
		if _, err := f.metadata.Do(t.Context(), command); err != nil {
			t.Fatal(err)
		}
	}
}

// join admits n2 with an incarnation.
func (f *formerMember) join(t *testing.T, start uint64) {
	t.Helper()
	n2 := meta.Member{Node: "n2", Address: "b:1", PeerAddress: "b:2", Disk: "e", Incarnation: start, Speaks: sharding.SupportedVersions}
	f.do(t, meta.Join(n2), meta.SetStatus("n2", start, meta.StatusUp))
}

func (f *formerMember) removeMember(t *testing.T) {
	t.Helper()
	placement, _ := f.metadata.View().Placement(sharding.MetaShard)
	replica, placed := placement.ReplicaOn("n2")
	if !placed {
		t.Fatal("n2 has no replica of the metadata shard")
	}
	f.do(t, meta.Retire(sharding.MetaShard, replica.ID), meta.Forget(sharding.MetaShard, replica.ID), meta.RemoveMember("n2"))
}

// The metadata alone shows that the disk of a removed member is an older copy.
// The nodes that recorded the member's last incarnation may not vote any
// more.
func TestOldCopyOfRemovedMemberIsStale(t *testing.T) {
	former := newFormerMember(t, false)
	for attested, want := range map[uint64]staledisk.Result{5: staledisk.Stale, 7: staledisk.Passed} {
		start := staledisk.Start{Node: "n2", Attested: attested, Requested: 10}
		_, answer, err := former.n2.Attest(t.Context(), former.address, &peerv1.VouchRequest{Vouched: start.Attested, Asked: start.Requested, Address: "b:2"})
		if err != nil {
			t.Fatal(err)
		}
		check := staledisk.New(start, 0, nil)
		check.AddAnswer(staledisk.Answer{From: "n1", Latest: answer.GetLatest(), Index: answer.GetIndex(), Voters: []sharding.NodeID{"n1"}})
		if check.Result() != want {
			t.Errorf("the disk has start %d and n1 knows %d: %v, want %v", attested, answer.GetLatest(), check.Result(), want)
		}
	}
}

// checkOlderCopy starts the stale-disk check of an older copy of n2's disk. It
// returns the check, the reasons why the node had to stop and the lines that it
// logs.
func (f *formerMember) checkOlderCopy(t *testing.T) (*StaleDiskCheck, endings, *lines) {
	t.Helper()
	old, _ := newMetadata(t)
	id := datadir.Identity{Format: sharding.Version1, Node: "n2", Disk: "e", Cluster: "c", Several: true, Attested: 5, Requested: 10, Incarnation: 9}
	ended := make(endings, 1)
	log := &lines{wrote: make(chan struct{}, 10)}
	check := NewStaleDiskCheck(StaleDiskCheckOptions{
		Identity:    datadir.NewRecord(t.TempDir(), id),
		Entrance:    f,
		AddressBook: NewAddressBook("n2", unheeded{}),
		Metadata:    old,
		Raft:        votesWrongly{t},
		Lifecycle:   ended,
		Logger:      slog.New(slog.NewTextHandler(log, nil)),
	})
	check.Start(0)
	t.Cleanup(func() {
		if err := check.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return check, ended, log
}

// An older copy of the disk of a node that died ends the node, so that it joins
// with a new disk. A node that was asked to leave and has left does not join
// again by itself.
func TestOldCopyOfLeftMemberStaysOutside(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		check, ended, log := newFormerMember(t, leaves).checkOlderCopy(t)
		for done := false; !done; {
			select {
			case err := <-ended:
				if done = true; leaves || !errors.Is(err, ErrOlderCopy) {
					t.Errorf("leaves %v: the node ended with %v", leaves, err)
				}
			case <-log.wrote:
				done = errors.Is(check.VoteError(), errLeftBefore)
				if done && !leaves {
					t.Error("a node that died has left")
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("leaves %v: the check has no result", leaves)
			}
		}
	}
}

// A node with an older copy of its disk keeps asking while the only node
// that answers does not know of the departure, and reports that the leader
// does not answer. Later it learns from the leader that it has left.
func TestOldCopyAsksUntilTheLeaderAnswers(t *testing.T) {
	former := newFormerMember(t, true)
	former.silent.Store(true)
	check, ended, _ := former.checkOlderCopy(t)
	every, deadline := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer every.Stop()
	await := func(what string, done func(error) bool) {
		t.Helper()
		for !done(check.VoteError()) {
			select {
			case err := <-ended:
				t.Fatalf("the node ended with %v", err)
			case <-every.C:
			case <-deadline:
				t.Fatalf("%s: %v", what, check.VoteError())
			}
		}
	}
	await("the silence of the leader is not reported", func(err error) bool {
		return errors.Is(err, errOlderCopy) && strings.Contains(err.Error(), "none leads the metadata shard")
	})
	former.silent.Store(false)
	await("the departure is not reported", func(err error) bool { return errors.Is(err, errLeftBefore) })
}

// A node that has left may not discard damaged data: it would join again with
// an empty disk.
func TestLeftNodeMayNotRenew(t *testing.T) {
	former := newFormerMember(t, true)
	if err := former.Entry().Renew(t.Context(), nil); !errors.Is(err, errLeft) {
		t.Errorf("the node asked, and got %v", err)
	}
	if err := former.control.Renew(t.Context(), "n2"); !errors.Is(err, peer.ErrRefused) {
		t.Errorf("the leader answered %v", err)
	}
	died := newFormerMember(t, false)
	if err := died.control.Renew(t.Context(), "n2"); errors.Is(err, peer.ErrRefused) {
		t.Errorf("the leader refused a node that died: %v", err)
	}
}

// raised are the incarnations that were passed to Raise.
type raised []uint64

func (r *raised) Raise(incarnation uint64) error {
	*r = append(*r, incarnation)
	return nil
}

// A node that was removed as dead and joins with an empty disk and an earlier
// clock gets an incarnation above all that other nodes may have recorded for
// it. Otherwise its next incarnation would be taken for that of an older
// copy.
func TestRemovedMemberStartsAfterItsLastStart(t *testing.T) {
	former, raises := newFormerMember(t, false), raised{}
	e := former.Entry()
	e.Self.Disk, e.Self.Incarnation, e.Incarnations, e.Seeds = "f", 3, &raises, []string{former.address}
	_, err := e.ask(t.Context(), e.probe(t.Context()))
	if want := uint64(7 + staledisk.MaxLeap + 1); len(raises) != 1 || raises[0] != want {
		t.Errorf("raised to %v, want %d; %v", raises, want, err)
	}
}

// A former member may join again with an incarnation that is in the future,
// if a previous incarnation in the future was accepted before a clock was
// corrected.
func TestFormerMemberMayStartAfterItsLastStart(t *testing.T) {
	former := newFormerMember(t, false)
	future := uint64(time.Now().Add(100 * time.Hour).UnixMilli())
	m := meta.Member{Node: "n2", Address: "b:1", PeerAddress: "b:2", Disk: "e", Incarnation: future, Speaks: sharding.SupportedVersions}
	o := &ControlOptions{Self: "n1", Metadata: former.metadata, Peers: probes{together: answers{"b:2": {NodeId: "n2", Incarnation: future + 1, ClusterId: "c"}}}}
	n3 := m
	n3.Node, m.Incarnation = "n3", future+1
	if err := o.verifyApplicant(t.Context(), n3); !errors.Is(err, peer.ErrRefused) {
		t.Errorf("a start in the future: %v", err)
	}
	former.join(t, future)
	former.do(t, meta.SetStatus("n2", future, meta.StatusDown))
	former.removeMember(t)
	if err := o.verifyApplicant(t.Context(), m); err != nil {
		t.Errorf("a start after that of the former member: %v", err)
	}
}

// lines reports each line that is logged.
type lines struct{ wrote chan struct{} }

func (l *lines) Write(p []byte) (int, error) {
	l.wrote <- struct{}{}
	return len(p), nil
}
