package peer_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
)

// roster is metadata with the members of a cluster.
type roster struct {
	mu       sync.Mutex
	standing peer.Standing
	asked    int
	confirm  func(ctx context.Context) error
}

func (r *roster) set(s peer.Standing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.standing = s
}

func (r *roster) Standing(sharding.NodeID, uint64) peer.Standing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.standing
}

func (r *roster) Confirm(ctx context.Context) error {
	r.mu.Lock()
	confirm := r.confirm
	r.asked++
	r.mu.Unlock()
	return confirm(ctx)
}

// calls makes a call that any incarnation may make, and a call that only
// members may make.
func calls(t *testing.T, from *node, address string) (join, read error) {
	_, join = from.Join(t.Context(), address, &peerv1.JoinRequest{Member: &peerv1.Member{NodeId: string(from.id), Incarnation: 1}})
	_, read = from.ReadMeta(t.Context(), "b")
	return join, read
}

// A node serves a caller according to its metadata. If the caller is not in
// this metadata, the node reads the metadata shard first.
func TestOnlyMembersAreServed(t *testing.T) {
	lost := errors.New("no leader")
	for _, tt := range []struct {
		name          string
		known         peer.Standing
		confirmed     peer.Standing // the standing after a read
		fails         error         // the error of the read
		join, members error
		asks          bool
	}{
		{"a member", peer.StandingMember, peer.StandingUnknown, lost, nil, nil, false},
		{"a member that is not known yet", peer.StandingUnknown, peer.StandingMember, nil, nil, nil, true},
		{"a stranger", peer.StandingUnknown, peer.StandingUnknown, nil, nil, peer.ErrNotMember, true},
		{"nobody can be asked", peer.StandingUnknown, peer.StandingUnknown, lost, nil, peer.ErrUnavailable, true},
		{"a new start of a node that was put down", peer.StandingOutside, peer.StandingOutside, nil, nil, peer.ErrNotMember, true},
		{"one that was admitted meanwhile", peer.StandingOutside, peer.StandingMember, nil, nil, nil, true},
		{"a start that was put down", peer.StandingPutDown, peer.StandingMember, nil, peer.ErrPutDown, peer.ErrPutDown, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := start(t, network.TCP{}, "127.0.0.1:0", "a")
			defer a.stop(t)
			b := start(t, network.TCP{}, "127.0.0.1:0", "b", func(o *peer.Options) { o.Control = &control{} })
			defer b.stop(t)
			r := &roster{standing: tt.known}
			r.confirm = func(context.Context) error {
				if tt.fails == nil {
					r.set(tt.confirmed)
				}
				return tt.fails
			}
			b.SetMembers(r)
			a.SetAddresses(map[sharding.NodeID]string{"b": b.addr})
			join, members := calls(t, a, b.addr)
			if !errors.Is(join, tt.join) || !errors.Is(members, tt.members) || (join == nil) != (tt.join == nil) || (members == nil) != (tt.members == nil) {
				t.Errorf("join: %v, a call of a member: %v", join, members)
			}
			if (r.asked > 0) != tt.asks {
				t.Errorf("the metadata was read %d times", r.asked)
			}
		})
	}
}

// A procedure that is not in the table requires a member. Examples are the
// calls that a node forwards for a client.
func TestForwardedCallsNeedMember(t *testing.T) {
	b := start(t, network.TCP{}, "127.0.0.1:0", "b")
	defer b.stop(t)
	r := &roster{confirm: func(context.Context) error { return nil }}
	b.SetMembers(r)
	served := 0
	passed := b.Admit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	for _, path := range []string{"/hostd.hop/hostd.cluster.v1.ClusterService/PutSetting", "/hostd.hop/hostd.peer.v1.PeerService/Probe", "/hostd.new.v1.NewService/Do"} {
		for standing, want := range map[peer.Standing]int{peer.StandingUnknown: http.StatusForbidden, peer.StandingMember: http.StatusOK} {
			r.set(standing)
			q := httptest.NewRequest(http.MethodPost, path, nil)
			for name, value := range map[string]string{"Content-Type": "application/json", "Hostd-Format": "1", "Hostd-Cluster": "test", "Hostd-Node": "a", "Hostd-Incarnation": "1"} {
				q.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			passed.ServeHTTP(w, q)
			if w.Code != want {
				t.Errorf("%s by a node of standing %d: %d, %s", path, standing, w.Code, w.Body)
			}
		}
	}
	if served != 3 {
		t.Errorf("%d calls were served", served)
	}
}

// When a node is put down, its link ends, none of its frames arrives, and it
// is suspected until a later incarnation calls.
func TestPutDownNodeIsCutOff(t *testing.T) {
	inBubble(t, "a", func(bu *bubble) {
		r := &roster{standing: peer.StandingMember}
		na := bu.nodes["a"]
		nb := start(bu, bu.net.Host("b"), ":7000", "b")
		bu.nodes["b"] = nb
		nb.SetMembers(r)
		bu.meet()
		bu.carries(na, nb)
		r.set(peer.StandingPutDown)
		nb.Sever("a")
		nb.untilState(t, "a", "heard", "silent")
		nb.mu.Lock()
		before := len(nb.frames)
		nb.mu.Unlock()
		for range 20 {
			na.Send("b", []byte("late"))
			time.Sleep(100 * time.Millisecond)
		}
		nb.mu.Lock()
		after := len(nb.frames)
		nb.mu.Unlock()
		if after != before {
			t.Errorf("%d frames arrived", after-before)
		}
		r.set(peer.StandingMember)
		nb.untilState(t, "a", "heard", "silent", "heard")
		bu.carries(na, nb)
	})
}

// If a node that is not a member makes many concurrent calls, only a few wait
// for a read of the metadata.
func TestCallsOfNonMembersAreBounded(t *testing.T) {
	a := start(t, network.TCP{}, "127.0.0.1:0", "a")
	defer a.stop(t)
	b := start(t, network.TCP{}, "127.0.0.1:0", "b", func(o *peer.Options) { o.Control = &control{} })
	defer b.stop(t)
	waiting, answer := make(chan struct{}, 100), make(chan struct{})
	r := &roster{confirm: func(ctx context.Context) error {
		waiting <- struct{}{}
		<-answer
		return nil
	}}
	b.SetMembers(r)
	a.SetAddresses(map[sharding.NodeID]string{"b": b.addr})
	const many = 40
	failed := make(chan error, many)
	for range many {
		go func() {
			_, err := a.ReadMeta(t.Context(), "b")
			failed <- err
		}()
	}
	for range many - 16 {
		if err := <-failed; !errors.Is(err, peer.ErrUnavailable) {
			t.Errorf("a call beyond the bound: %v", err)
		}
	}
	close(answer)
	for range 16 {
		if err := <-failed; !errors.Is(err, peer.ErrNotMember) {
			t.Errorf("a call within the bound: %v", err)
		}
	}
	if len(waiting) != 16 {
		t.Errorf("%d calls waited", len(waiting))
	}
}
