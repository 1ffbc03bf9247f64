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

// Bounds of the communication between nodes.
const (
	// MaxFrameBytes bounds a frame. A raft append has at most 1 MiB of entries
	// plus one more entry, so frames are never split.
	MaxFrameBytes = 4 << 20
	// maxNodeIDBytes bounds the name of a node.
	maxNodeIDBytes = 128
	// maxPeers bounds the nodes whose state is kept.
	maxPeers = 1024
)

// raftLoop is the raft loop of this node. No method may block.
type raftLoop interface {
	// Receive accepts arriving frames, one call at a time for each link. It may
	// keep the frame. Frames that arrive together share memory, at most 64 KiB
	// for a small frame.
	Receive(from sharding.NodeID, frame []byte)
	// Turns returns the number of iterations of the loop, or 0 if there is none
	// yet. It is sent to other nodes.
	Turns() uint64
}

// observer is notified of other nodes. No method may block. For each node the
// calls of PeerAlive and PeerSuspected alternate, and all come from one
// goroutine.
type observer interface {
	PeerAlive(sharding.NodeID)
	// PeerSuspected is called when nothing has arrived for SuspectAfter, or
	// when the node's raft loop has made no progress for StallAfter. It is
	// called once for a node that was never alive, too.
	PeerSuspected(sharding.NodeID)
	// PeerFailed is called, from the same goroutine, when the process of a node
	// that was alive seems to have ended, because its kernel closed the
	// links and refuses new links. It is only a hint, for reactions that are
	// harmless if it is wrong: the node still counts as alive. PeerAlive
	// follows if the hint was wrong, and PeerSuspected if nothing arrives.
	PeerFailed(sharding.NodeID)
	// PeerRefused is called for each call that is rejected before it is served,
	// with the calling node if it is known, and the reason.
	PeerRefused(r *http.Request, node sharding.NodeID, why error)
}

// unobserved is an observer that does nothing.
type unobserved struct{}

func (unobserved) PeerAlive(sharding.NodeID)                         {}
func (unobserved) PeerSuspected(sharding.NodeID)                     {}
func (unobserved) PeerFailed(sharding.NodeID)                        {}
func (unobserved) PeerRefused(*http.Request, sharding.NodeID, error) {}

// Options configures Peers. If a number or duration is zero, its default is
// used.
type Options struct {
	// Self, Incarnation and Cluster identify this node, this process of the
	// node, and its cluster in every call. Each time that a node starts, its
	// incarnation is higher. Cluster may be empty until SetCluster.
	Self        sharding.NodeID
	Incarnation uint64
	Cluster     string

	// Metadata knows the current cluster version. Nodes that do not support it
	// are rejected. Nil means sharding.Version1.
	Metadata interface {
		ClusterVersion() sharding.ClusterVersion
	}

	// Network makes the connections.
	Network network.Network
	Raft    raftLoop
	// Observer is notified of other nodes. It may be nil.
	Observer observer
	// Wall returns this node's wall clock (default time.Now), which is sent to
	// other nodes.
	Wall func() time.Time
	// Around are interceptors of the served calls, except links.
	Around []connect.Interceptor
	// Caller returns the principal on whose behalf the calls of a context are
	// made, encoded as by principal.HeaderOf, or "" for none. It is sent to
	// other nodes. If Caller is nil, no principal is sent.
	Caller func(ctx context.Context) string
	// Control answers the calls of other nodes. If nil, they are rejected.
	Control Control
	// Logger receives messages for operators. If nil, they are discarded.
	Logger *slog.Logger

	// HeartbeatPeriod is the heartbeat period of each side of a link (200 ms).
	HeartbeatPeriod time.Duration
	// SuspectAfter is the suspicion timeout: the time without arriving bytes
	// after which a node is suspected (700 ms).
	SuspectAfter time.Duration
	// StallAfter is how long the raft loop of a node may make no progress
	// while its bytes arrive (three times SuspectAfter). It does not apply to
	// nodes that do not report their loops.
	StallAfter time.Duration
	// StuckAfter is how long a link may make no progress before it is replaced
	// (3 s). After a long partition, TCP's next retransmission can be a minute
	// away.
	StuckAfter time.Duration
	// QueueBytes and QueueFrames bound the frames queued for one peer (16 MiB,
	// 8,192).
	QueueBytes  int
	QueueFrames int
	// MaxSnapshots bounds the snapshots that are received concurrently (2).
	MaxSnapshots int
	// CallTimeout is the timeout of calls whose context has no deadline (5 s).
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
		{&o.HeartbeatPeriod, 200 * time.Millisecond}, {&o.SuspectAfter, 700 * time.Millisecond},
		{&o.StuckAfter, 3 * time.Second}, {&o.CallTimeout, 5 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if o.StallAfter == 0 {
		o.StallAfter = 3 * o.SuspectAfter
	}
	for _, n := range []struct {
		value    *int
		standard int
	}{{&o.QueueBytes, 16 << 20}, {&o.QueueFrames, 8192}, {&o.MaxSnapshots, 2}} {
		if *n.value == 0 {
			*n.value = n.standard
		}
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.Caller == nil {
		o.Caller = func(context.Context) string { return "" }
	}
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	return o
}

// version returns the cluster version.
func (o *Options) version() sharding.ClusterVersion {
	if o.Metadata == nil {
		return sharding.Version1
	}
	return o.Metadata.ClusterVersion()
}

// patience returns how long a node counts as alive without a sign of life, in
// nanoseconds.
func (o *Options) patience() Patience {
	return Patience{Suspect: int64(o.SuspectAfter), Stall: int64(o.StallAfter)}
}

// Validate returns all errors in the options.
func (o Options) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(validName(string(o.Self)), "node id %q is empty, too long or not printable ASCII", o.Self)
	check(o.Cluster == "" || validName(o.Cluster), "cluster id %q is too long or not printable ASCII", o.Cluster)
	check(o.Incarnation > 0, "the incarnation must not be 0")
	check(o.Network != nil, "the network must be set")
	check(o.Raft != nil, "the receiver of frames must be set")
	d := o.withDefaults()
	check(d.HeartbeatPeriod > 0 && d.SuspectAfter > 2*d.HeartbeatPeriod, "suspect-after, %v, is too short for a heartbeat interval of %v", d.SuspectAfter, d.HeartbeatPeriod)
	check(d.StallAfter >= d.SuspectAfter, "the stall timeout, %v, must not be shorter than suspect-after", d.StallAfter)
	check(d.StuckAfter > d.SuspectAfter, "the stuck timeout of a connection, %v, must exceed suspect-after", d.StuckAfter)
	check(d.QueueBytes >= MaxFrameBytes && d.QueueFrames > 0, "a queue of %d frames and %d bytes is too small for a frame", d.QueueFrames, d.QueueBytes)
	check(d.MaxSnapshots > 0 && d.CallTimeout > 0, "limits must not be negative")
	return errors.Join(faults...)
}

// validName reports whether a name can be used in a header.
func validName(s string) bool {
	if s == "" || len(s) > maxNodeIDBytes {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
