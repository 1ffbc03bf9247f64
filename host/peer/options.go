package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/sharding"
)

// Bounds of what nodes send each other.
const (
	// MaxFrameBytes bounds a frame: an append of raft is at most 1 MiB of
	// entries and one entry more, so none is ever split.
	MaxFrameBytes = 4 << 20
	// MaxNodeIDBytes bounds the name of a node.
	MaxNodeIDBytes = 128
	// maxPeers bounds the nodes that are remembered.
	maxPeers = 1024
)

// Options of Peers. The zero value of a number or duration means its default.
type Options struct {
	// Self, Incarnation and Cluster name this node, its start and its cluster
	// in every call. Incarnations of a node grow from start to start. Cluster
	// may be empty until SetCluster.
	Self        sharding.NodeID
	Incarnation uint64
	Cluster     string

	// ClusterVersion is the cluster's level: nodes that do not speak it are refused. Nil:
	// sharding.Version1.
	Level func() sharding.ClusterVersion

	// Network dials.
	Network network.Network
	// Receive takes the frames that arrive, one call at a time for each link.
	// It must not block. The frame is its own; frames that arrive together
	// share memory, at most 64 KiB for a small one.
	Receive func(from sharding.NodeID, frame []byte)
	// OnHeard and OnSilent are called from one goroutine, in turns for each
	// node, when a node is heard again and when nothing of it has arrived for
	// SilentAfter, or its raft loop has stood still for StandsAfter. A node that
	// was never heard falls silent too, once. They must not block.
	OnHeard  func(sharding.NodeID)
	OnSilent func(sharding.NodeID)
	// OnGone is called, like the two above, when the process of a node that was
	// heard seems to have ended: its kernel has closed the links and refuses
	// others. It is a hint, for what may be begun too early without harm: the node
	// counts as heard on. OnHeard follows where it was wrong, OnSilent where
	// nothing arrives. It must not block.
	OnGone func(sharding.NodeID)
	// Turns is how often this node's raft loop has gone round, 0 while there is
	// none; nil: other nodes are not told. It must not block.
	Turns func() uint64
	// Wall is this node's wall clock (time.Now), which other nodes are told.
	Wall func() time.Time
	// Refused is told of each call that is refused before it is served, of the
	// node that makes it as far as that is known, and why. It must not block. Nil:
	// nobody is told.
	Refused func(r *http.Request, node sharding.NodeID, why error)
	// Around are interceptors of the calls that are served, but for links.
	Around []connect.Interceptor
	// Caller is what another node is told of for whom a context's calls are made,
	// as principal.HeaderOf has it; empty for nobody. Nil: nothing is told.
	Caller func(ctx context.Context) string
	// Control answers the calls of other nodes; nil refuses them.
	Control Control
	// Logger gets what operators should see; nil discards it.
	Logger *slog.Logger

	// Beat is how often each side of a link lets itself be heard (200 ms).
	Beat time.Duration
	// SilentAfter is how long nothing may arrive from a node (700 ms).
	SilentAfter time.Duration
	// StandsAfter is how long the raft loop of a node may stand still while its
	// bytes arrive (three times SilentAfter). Nodes that tell nothing of their
	// loops are not held to it.
	StandsAfter time.Duration
	// StuckAfter is how long a link may make no progress before it is made
	// anew (3 s): after a long cut TCP's own retry can be a minute away.
	StuckAfter time.Duration
	// QueueBytes and QueueFrames bound what waits for one peer (16 MiB, 8,192).
	QueueBytes  int
	QueueFrames int
	// MaxSnapshots bounds the snapshots that are received at a time (2).
	MaxSnapshots int
	// CallTimeout is given to calls whose context brings no deadline (5 s).
	CallTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Control == nil {
		o.Control = NoControl{}
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&o.Beat, 200 * time.Millisecond}, {&o.SilentAfter, 700 * time.Millisecond},
		{&o.StuckAfter, 3 * time.Second}, {&o.CallTimeout, 5 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if o.StandsAfter == 0 {
		o.StandsAfter = 3 * o.SilentAfter
	}
	for _, n := range []struct {
		value    *int
		standard int
	}{{&o.QueueBytes, 16 << 20}, {&o.QueueFrames, 8192}, {&o.MaxSnapshots, 2}} {
		if *n.value == 0 {
			*n.value = n.standard
		}
	}
	if o.Level == nil {
		o.Level = sharding.FirstVersion
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.Turns == nil {
		o.Turns = func() uint64 { return 0 }
	}
	if o.Caller == nil {
		o.Caller = func(context.Context) string { return "" }
	}
	if o.Refused == nil {
		o.Refused = func(*http.Request, sharding.NodeID, error) {}
	}
	if o.OnHeard == nil {
		o.OnHeard = func(sharding.NodeID) {}
	}
	if o.OnSilent == nil {
		o.OnSilent = func(sharding.NodeID) {}
	}
	if o.OnGone == nil {
		o.OnGone = func(sharding.NodeID) {}
	}
	return o
}

// patience is how long a node counts as heard, in nanoseconds.
func (o *Options) patience() Patience {
	return Patience{Silent: int64(o.SilentAfter), Stands: int64(o.StandsAfter)}
}

// Validate joins all faults of the options.
func (o Options) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(validName(string(o.Self)), "node id %q is empty, too long or not printable ASCII", o.Self)
	check(o.Cluster == "" || validName(o.Cluster), "cluster id %q is too long or not printable ASCII", o.Cluster)
	check(o.Incarnation > 0, "the incarnation is 0")
	check(o.Network != nil, "no network")
	check(o.Receive != nil, "no receiver of frames")
	d := o.withDefaults()
	check(d.Beat > 0 && d.SilentAfter > 2*d.Beat, "silence of %v cannot be told with a beat of %v", d.SilentAfter, d.Beat)
	check(d.StandsAfter >= d.SilentAfter, "a loop cannot stand still after %v, before a node is silent", d.StandsAfter)
	check(d.StuckAfter > d.SilentAfter, "a link cannot be stuck after %v", d.StuckAfter)
	check(d.QueueBytes >= MaxFrameBytes && d.QueueFrames > 0, "a queue of %d frames and %d bytes has no room for a frame", d.QueueFrames, d.QueueBytes)
	check(d.MaxSnapshots > 0 && d.CallTimeout > 0, "negative bound")
	return errors.Join(faults...)
}

// validName reports whether a name can stand in a header.
func validName(s string) bool {
	if s == "" || len(s) > MaxNodeIDBytes {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
