package clusterapi

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host/rpc/admission"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/sharding"
)

const (
	// lookEvery is how often a call that goes on looks for nodes, and nodePause
	// how long it leaves one alone that did not answer.
	memberPause = 2 * time.Second
	nodePause   = time.Second
)

// allNodes is what calls need. All its members are required.
type allNodes struct {
	Self string
	// Members names the nodes of the cluster.
	Members func(ctx context.Context) ([]sharding.NodeID, error)
	Proxy   *leaderproxy.Proxy
	Streams *admission.Streams
	Log     *slog.Logger
}

// Whole reports that a call is about all nodes: it is no node's for its caller,
// and there are others.
func (s *allNodes) Whole(ctx context.Context) bool {
	return !leaderproxy.FromPeer(ctx) && !s.Proxy.Alone()
}

// streamCall is one call, whose answers are M. All its members but Left are required.
type streamCall[M any] struct {
	*allNodes
	// GoesOn: it ends when the caller or the server ends it. Otherwise it ends
	// when all nodes have, of which another one may take NodeTime.
	GoesOn   bool
	NodeTime time.Duration
	// Here says what this node has to say, and returns when it has or send is
	// false.
	Here func(ctx context.Context, send func(*M) bool)
	// There asks another node.
	There func(ctx context.Context, c clusterv1connect.ClusterServiceClient) (*connect.ServerStreamForClient[M], error)
	// Missing says that a node does not answer.
	Missing func(node string) *M
	// Left says that a node has left the cluster, where the call goes on; nil:
	// nothing does.
	Left func(node string) *M
}

// Run answers the call, which is admitted as open.
func (c *streamCall[M]) Run(ctx context.Context, open *admission.Stream, out *connect.ServerStream[M]) error {
	// A client waits for the headers, which would come with the first message.
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

// running is a call while it runs.
type running[M any] struct {
	*streamCall[M]
	messages chan *M
	all      sync.WaitGroup
}

// send hands a message over to the call.
func (r *running[M]) send(ctx context.Context, m *M) bool {
	select {
	case r.messages <- m:
		return true
	case <-ctx.Done():
		return false
	}
}

// askedNode is another node that is asked.
type askedNode struct {
	end   context.CancelFunc
	ended chan struct{}
}

// others asks all other nodes, those too that come later, and no more those
// that have left.
func (r *running[M]) others(ctx context.Context) {
	known := map[sharding.NodeID]askedNode{}
	for {
		members, err := r.Members(ctx)
		if err == nil && !r.leave(ctx, known, members) { // else a call that goes on looks again
			return
		}
		for _, node := range members {
			if _, is := known[node]; !is && node != sharding.NodeID(r.Self) {
				known[node] = r.ask(ctx, node)
			}
		}
		if !r.GoesOn || !pause(ctx, memberPause) {
			return
		}
	}
}

// ask begins to ask another node.
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

// leave asks nodes no more that are no members, and says so when the last of
// what they have said is handed over. It is false when ctx ends.
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

// node passes on what another node says, and says once that it does not answer.
func (r *running[M]) node(ctx context.Context, node sharding.NodeID) {
	missing := false
	for {
		err := r.once(ctx, node, func() { missing = false })
		if ctx.Err() != nil || err == nil && !r.GoesOn {
			return
		}
		if !missing {
			missing = true
			if !r.send(ctx, r.Missing(string(node))) {
				return
			}
		}
		if !r.GoesOn || !pause(ctx, nodePause) {
			return
		}
	}
}

// once asks another node once. It calls heard when it answers.
func (r *running[M]) once(ctx context.Context, node sharding.NodeID, heard func()) error {
	if !r.GoesOn {
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

// pause waits, and is false when ctx ends.
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
