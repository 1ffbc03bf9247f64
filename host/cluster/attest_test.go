package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"testing"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding/membership/seeds"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/sharding/staledisk"
)

// vouching is a node that attests an incarnation only if its address equals
// reaches.
type vouching struct {
	peer.NoControl
	reaches string
	asked   atomic.Int32
}

func (v *vouching) Attest(_ context.Context, r *peerv1.VouchRequest) (*peerv1.VouchResponse, error) {
	v.asked.Add(1)
	if r.GetAddress() != v.reaches {
		return nil, fmt.Errorf("%w: this start does not answer at %q", peer.ErrUnavailable, r.GetAddress())
	}
	return &peerv1.VouchResponse{Index: 7, Voters: []*peerv1.ReplicaAddress{{NodeId: "n1"}}}, nil
}

// entryFunc returns the parameters for joining.
type entryFunc func() cluster.Entry

func (f entryFunc) Entry() cluster.Entry { return f() }

// A node sends its current address in each round of questions, because its
// cluster's version, and with it the address, may not be known in the first
// round.
func TestAttestationUsesCurrentAddress(t *testing.T) {
	n1 := &vouching{reaches: "b:2"}
	_, at := answering(t, "n1", n1)
	self, here := answering(t, "n2", peer.NoControl{})
	start := staledisk.Start{Node: "n2", Attested: 4, Requested: 5}
	entry := entryFunc(func() cluster.Entry {
		e := cluster.Entry{Peers: self, Self: meta.Member{Node: "n2", Address: here}, PeersAt: "b:1", Seeds: []string{at}}
		if n1.asked.Load() > 0 {
			e.PeersAt = "b:2"
		}
		return e
	})
	verdict, err := cluster.Prove(t.Context(), entry, staledisk.New(start, 0, nil), start, cluster.NewAddressBook("n2", self), func(error) {})
	if err != nil || verdict != staledisk.Passed {
		t.Errorf("%v, %v", verdict, err)
	}
}

// A seed may be a name with SRV records. While the name cannot be resolved,
// it counts as a seed that does not answer.
func TestSeedsAreRecordsSRV(t *testing.T) {
	n1 := &vouching{reaches: "b:2"}
	_, at := answering(t, "n1", n1)
	self, here := answering(t, "n2", peer.NoControl{})
	host, text, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	looks := 0
	look := seeds.Lookup{SRV: func(_ context.Context, name string) ([]*net.SRV, error) {
		if looks++; name != "_hostd._tcp.cluster.test" || looks < 3 {
			return nil, errors.New("no such host")
		}
		return []*net.SRV{{Target: host, Port: uint16(port)}}, nil
	}}
	start := staledisk.Start{Node: "n2", Attested: 4, Requested: 5}
	entry := entryFunc(func() cluster.Entry {
		return cluster.Entry{Peers: self, Self: meta.Member{Node: "n2", Address: here}, PeersAt: "b:2", Seeds: []string{"srv+_hostd._tcp.cluster.test"}, Lookup: look}
	})
	verdict, err := cluster.Prove(t.Context(), entry, staledisk.New(start, 0, nil), start, cluster.NewAddressBook("n2", self), func(error) {})
	if err != nil || verdict != staledisk.Passed || n1.asked.Load() == 0 {
		t.Errorf("%v, %v, asked %d times", verdict, err, n1.asked.Load())
	}
}
