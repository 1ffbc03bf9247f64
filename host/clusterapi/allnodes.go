package clusterapi

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/sharding"
)

const (
	// memberPause is how often a call that continues looks for new nodes.
	// nodePause is how long it waits before it repeats the question to a
	// node that did not answer.
	memberPause = 2 * time.Second
	nodePause   = time.Second
)

// allNodes holds the parts of this node on which calls to all nodes depend. All
// fields are required.
type allNodes struct {
	Self    string
	Nodes   memberLister
	Proxy   *leaderproxy.Proxy
	Streams *admission.Streams
	Log     *slog.Logger
}

// Whole reports whether a call must ask all nodes: it was not forwarded by a
// node, and there are other nodes.
func (s *allNodes) Whole(ctx context.Context) bool {
	return !leaderproxy.FromPeer(ctx) && !s.Proxy.Alone()
}

// streamCall is one call, whose responses have type M. All fields except Left
// are required.
type streamCall[M any] struct {
	*allNodes
	// Continues means that the call continues until the caller or the server
	// ends it. Otherwise the call ends when all nodes have answered, and each
	// remote node may take NodeTime.
	Continues bool
	NodeTime  time.Duration
	// Here sends the data of this node. It returns when all data is sent or
	// send returns false.
	Here func(ctx context.Context, send func(*M) bool)
	// There makes the call to a different node.
	There func(ctx context.Context, c clusterv1connect.ClusterServiceClient) (*connect.ServerStreamForClient[M], error)
	// Missing makes the message that reports that a node does not answer.
	Missing func(node string) *M
	// Left makes the message that reports that a node has left the cluster
	// during a call that continues. nil sends no message.
	Left func(node string) *M
}

// Run runs the call, whose admission is open.
func (c *streamCall[M]) Run(ctx context.Context, open *admission.Stream, out *connect.ServerStream[M]) error {
	// Send the headers now, because the client waits for them and the first
	// message may arrive late.
	if err := out.Send(nil); err != nil {
		return err
	}
	whole := c.Whole(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	r := &running[M]{streamCall: c, messages: make(chan *M)}
	ended := make(chan struct{})
	r.all.Go(func() { c.Here(ctx, func(m *M) bool { return r.send(ctx, m) }) })
	if whole {
		r.all.Go(func() { r.others(ctx) })
	}
	go func() { r.all.Wait(); close(ended) }()
	defer func() { cancel(nil); <-ended }()
	for {
		select {
		case m := <-r.messages:
			open.BeginWrite()
			err := out.Send(m)
			open.EndWrite()
			if err != nil {
				return err
			}
		case <-ended:
			return context.Cause(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.Streams.Stopping():
			return admission.ErrStopping
		}
	}
}

// running is a call in progress.
type running[M any] struct {
	*streamCall[M]
	messages chan *M
	all      sync.WaitGroup
}

// send passes a message to the goroutine of the call. It returns false if ctx
// ends.
func (r *running[M]) send(ctx context.Context, m *M) bool {
	select {
	case r.messages <- m:
		return true
	case <-ctx.Done():
		return false
	}
}

// askedNode is a different node that is being asked.
type askedNode struct {
	end   context.CancelFunc
	ended chan struct{}
}

// others asks all other nodes, including nodes that join later, and stops asking
// nodes that have left.
func (r *running[M]) others(ctx context.Context) {
	known := map[sharding.NodeID]askedNode{}
	for {
		members, err := r.Nodes.Members(ctx)
		if err == nil && !r.leave(ctx, known, members) { // after an error, a call that continues tries again
			return
		}
		for _, node := range members {
			if _, is := known[node]; !is && node != sharding.NodeID(r.Self) {
				known[node] = r.ask(ctx, node)
			}
		}
		if !r.Continues || !pause(ctx, memberPause) {
			return
		}
	}
}

// ask starts to ask a different node.
func (r *running[M]) ask(ctx context.Context, node sharding.NodeID) askedNode {
	ctx, end := context.WithCancel(ctx)
	a := askedNode{end, make(chan struct{})}
	r.all.Go(func() {
		defer close(a.ended)
		defer end()
		r.node(ctx, node)
	})
	return a
}

// leave stops asking nodes that are no longer members, and reports each such
// node after its last message was passed on. It returns false if ctx ends.
func (r *running[M]) leave(ctx context.Context, known map[sharding.NodeID]askedNode, members []sharding.NodeID) bool {
	for node, a := range known {
		if slices.Contains(members, node) {
			continue
		}
		a.end()
		<-a.ended
		delete(known, node)
		if r.Left != nil && !r.send(ctx, r.Left(string(node))) {
			return false
		}
	}
	return true
}

// node passes on the messages of a different node. If the node does not answer,
// it reports that once.
func (r *running[M]) node(ctx context.Context, node sharding.NodeID) {
	missing := false
	for {
		err := r.once(ctx, node, func() { missing = false })
		if ctx.Err() != nil || err == nil && !r.Continues {
			return
		}
		if !missing {
			missing = true
			if !r.send(ctx, r.Missing(string(node))) {
				return
			}
		}
		if !r.Continues || !pause(ctx, nodePause) {
			return
		}
	}
}

// once calls a different node once. It calls heard for each message of that
// node.
func (r *running[M]) once(ctx context.Context, node sharding.NodeID, heard func()) error {
	if !r.Continues {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.NodeTime)
		defer cancel()
	}
	c, err := r.Proxy.Cluster(node)
	if err != nil {
		return err
	}
	in, err := r.There(ctx, c)
	if err != nil {
		return err
	}
	defer in.Close()
	for in.Receive() {
		heard()
		if !r.send(ctx, in.Msg()) {
			return ctx.Err()
		}
	}
	return in.Err()
}

// pause waits for d. It returns false if ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
