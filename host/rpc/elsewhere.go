package rpc

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/sharding"
)

// Nodes finds the node that leads a shard and calls it. No method blocks.
type Nodes interface {
	// Leader names the node that leads the shard; self says that it is this
	// one, which serves. known is false while no leader is known.
	Leader(shard sharding.ShardID) (node sharding.NodeID, self, known bool)
	// Quorum is false while this node hears no quorum of the shard.
	Quorum(shard sharding.ShardID) bool
	// Changed returns a channel that gets a value, or is closed, when anything
	// that was told before the call has changed.
	Changed() <-chan struct{}
	// Client returns an HTTP client of another node and the base of its URLs.
	Client(node sharding.NodeID) (client *http.Client, baseURL string, err error)
}

// HopPath is where a node serves what other nodes ask for their callers:
// Server.Hop, which those who mount it open to nodes alone. Nothing that
// arrives there goes on to a third node.
const HopPath = "/hostd.hop/"

// Pauses between attempts at the leader of a shard.
const (
	minLeaderPause = 2 * time.Millisecond
	maxLeaderPause = 100 * time.Millisecond
)

// elsewhere sends calls about a shard to the node that leads it. It is safe for
// concurrent use.
type elsewhere struct {
	nodes Nodes // nil where this node leads every shard

	mu      sync.Mutex
	clients map[sharding.NodeID]entityv1connect.EntityServiceClient
}

type hopKey struct{}

// Hopped reports that a call came from another node, which has asked this one
// for its caller: it must not go on to a third.
func Hopped(ctx context.Context) bool { return ctx.Value(hopKey{}) != nil }

// hop serves calls of other nodes with the handlers of the entity service and,
// for orders to the coordinator, of the cluster service.
func hop(next http.Handler, opts Options) http.Handler {
	next = gate(next, Options{Opened: opts.Opened})
	return http.StripPrefix(strings.TrimSuffix(HopPath, "/"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/"+entityv1connect.EntityServiceName+"/") && !strings.HasPrefix(r.URL.Path, "/"+clusterv1connect.ClusterServiceName+"/") {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), hopKey{}, true)))
	}))
}

// leader returns a client of the node that leads the shard, or nil when this
// one does. It waits for a leader as long as ctx, but not without a quorum, and
// not for a caller that is a node: that one asks again.
func (e *elsewhere) leader(ctx context.Context, shard sharding.ShardID) (entityv1connect.EntityServiceClient, error) {
	if e.nodes == nil {
		return nil, nil
	}
	for {
		changed := e.nodes.Changed()
		node, self, known := e.nodes.Leader(shard)
		switch {
		case known && self:
			return nil, nil
		case ctx.Value(hopKey{}) != nil, !e.nodes.Quorum(shard):
			return nil, &sharding.NotLeaderError{Shard: shard, Leader: node}
		case known:
			return e.client(node)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, &sharding.NotLeaderError{Shard: shard}
		}
	}
}

// leads reports whether this node leads the shard.
func (e *elsewhere) leads(shard sharding.ShardID) bool {
	if e.nodes == nil {
		return true
	}
	_, self, known := e.nodes.Leader(shard)
	return self && known
}

// changed is a channel of Nodes, or one that never gets anything.
func (e *elsewhere) changed() <-chan struct{} {
	if e.nodes == nil {
		return nil
	}
	return e.nodes.Changed()
}

func (e *elsewhere) client(node sharding.NodeID) (entityv1connect.EntityServiceClient, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.clients[node]; c != nil {
		return c, nil
	}
	http, base, err := e.nodes.Client(node)
	if err != nil {
		return nil, router.ErrUnreachable
	}
	if e.clients == nil {
		e.clients = make(map[sharding.NodeID]entityv1connect.EntityServiceClient)
	}
	c := entityv1connect.NewEntityServiceClient(http, base+strings.TrimSuffix(HopPath, "/"),
		connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxHopBytes))
	e.clients[node] = c
	return c, nil
}

// maxHopBytes bounds a message from another node.
const maxHopBytes = 4 << 20

// retry reports that a call may do better at the next leader: the node did not
// lead the shard, or was not reached.
func retry(err error) bool {
	var notLeader *sharding.NotLeaderError
	if errors.As(err, &notLeader) || errors.Is(err, router.ErrUnreachable) {
		return true
	}
	var theirs *connect.Error
	if !errors.As(err, &theirs) {
		return false
	}
	code := theirs.Code()
	return code == connect.CodeUnavailable || !connect.IsWireError(err) && code != connect.CodeDeadlineExceeded && code != connect.CodeCanceled
}

// passedOn is another node's error as the caller gets it: that of a node as it
// is, without what belongs to the call between the nodes, and of the way to it
// that it could not be reached.
func passedOn(err error) error {
	var theirs *connect.Error
	if !errors.As(err, &theirs) {
		return err
	}
	if !connect.IsWireError(err) {
		switch theirs.Code() {
		case connect.CodeDeadlineExceeded:
			return errNoOutcome
		case connect.CodeCanceled:
			return context.Canceled
		}
		return router.ErrUnreachable
	}
	out := connect.NewError(theirs.Code(), errors.New(theirs.Message()))
	for _, d := range theirs.Details() {
		out.AddDetail(d)
	}
	return out
}

// backoff waits between attempts, no longer than ctx and until something changes.
type backoff struct{ next time.Duration }

func (p *backoff) wait(ctx context.Context, changed <-chan struct{}) error {
	p.next = min(max(2*p.next, minLeaderPause), maxLeaderPause)
	t := time.NewTimer(p.next)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// atLeader makes a call that may be repeated at the node that leads the shard:
// here when client is nil. It goes on to the next leader until ctx ends.
func atLeader[Res any](ctx context.Context, e *elsewhere, shard sharding.ShardID,
	do func(ctx context.Context, client entityv1connect.EntityServiceClient) (*Res, error)) (*Res, error) {
	var p backoff
	for {
		changed := e.changed()
		client, err := e.leader(ctx, shard)
		if err == nil {
			var res *Res
			if res, err = do(ctx, client); err == nil || client == nil {
				return res, err
			}
		}
		hopped := ctx.Value(hopKey{}) != nil
		if hopped || !retry(err) || e.nodes != nil && !e.nodes.Quorum(shard) || p.wait(ctx, changed) != nil {
			return nil, passedOn(err)
		}
	}
}
