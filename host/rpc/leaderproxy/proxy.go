package leaderproxy

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
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// Nodes finds the node that leads a shard and calls it. No method blocks.
type Nodes interface {
	// Leader names the node that leads the shard; self says that it is this
	// one, which serves. known is false while no leader is known.
	Leader(shard sharding.ShardID) (node sharding.NodeID, self, known bool)
	// Quorum is false if the shard can have no leader that this node reaches.
	Quorum(shard sharding.ShardID) bool
	// Missing says why the shard may have no leader.
	Missing(shard sharding.ShardID) sharding.Missing
	// Hears reports whether this node hears another one. Changed covers it.
	Hears(node sharding.NodeID) bool
	// Changed returns a channel that gets a value, or is closed, when anything
	// that was told before the call has changed.
	Changed() <-chan struct{}
	// Client returns an HTTP client of another node and the base of its URLs.
	Client(node sharding.NodeID) (client *http.Client, baseURL string, err error)
}

// Path is where a node serves what other nodes ask for their callers: Handler,
// which those who mount it open to nodes alone. Nothing that arrives there goes
// on to a third node.
const Path = "/hostd.hop/"

// Pauses between attempts at the leader of a shard, and how long one is looked
// for in all.
const (
	MinPause = 2 * time.Millisecond
	MaxPause = 100 * time.Millisecond
	Patience = request.LeaderPatience
)

// Proxy takes calls about a shard to the node that leads it. It is safe for
// concurrent use.
type Proxy struct {
	nodes Nodes // nil where this node leads every shard

	mu      sync.Mutex
	clients map[sharding.NodeID]entityv1connect.EntityServiceClient
}

// New makes a proxy; without nodes it leads every shard itself.
func New(nodes Nodes) *Proxy { return &Proxy{nodes: nodes} }

// Alone reports that there is no other node.
func (p *Proxy) Alone() bool { return p.nodes == nil }

// Quorum is false if the shard can have no leader that this node reaches.
func (p *Proxy) Quorum(shard sharding.ShardID) bool { return p.nodes == nil || p.nodes.Quorum(shard) }

// Handler serves calls of other nodes with the handlers of the entity service,
// of the cluster service for operations of the coordinator, and of Verify and
// Fit.
func Handler(next http.Handler) http.Handler {
	return http.StripPrefix(strings.TrimSuffix(Path, "/"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/"+entityv1connect.EntityServiceName+"/") && !strings.HasPrefix(r.URL.Path, "/"+clusterv1connect.ClusterServiceName+"/") &&
			r.URL.Path != modulev1connect.ModuleServiceVerifyProcedure && r.URL.Path != modulev1connect.ModuleServiceFitProcedure {
			http.NotFound(w, r)
			return
		}
		said, err := said(r.Header)
		if err != nil {
			http.Error(w, "the caller that the node names is none", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, said)))
	}))
}

// Leader returns a client of the node that leads the shard, or nil when this
// one does. It waits for a leader as long as ctx and Patience allow, but not
// without a quorum, and not for a caller that is a node: that one asks again.
func (p *Proxy) Leader(ctx context.Context, shard sharding.ShardID) (entityv1connect.EntityServiceClient, error) {
	node, err := p.find(ctx, shard)
	if node == "" || err != nil {
		return nil, err
	}
	return p.Client(node)
}

// LeaderModules is Leader with a client of the module service, for Verify and
// Fit.
func (p *Proxy) LeaderModules(ctx context.Context, shard sharding.ShardID) (modulev1connect.ModuleServiceClient, error) {
	node, err := p.find(ctx, shard)
	if node == "" || err != nil {
		return nil, err
	}
	http, base, err := p.nodes.Client(node)
	if err != nil {
		return nil, request.ErrUnreachable
	}
	return modulev1connect.NewModuleServiceClient(p.hearing(http, node), base+strings.TrimSuffix(Path, "/"),
		connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxMessageBytes)), nil
}

// find names the node that leads the shard, "" when it is this one.
func (p *Proxy) find(ctx context.Context, shard sharding.ShardID) (sharding.NodeID, error) {
	if p.nodes == nil {
		return "", nil
	}
	patience := time.NewTimer(Patience)
	defer patience.Stop()
	for {
		changed := p.nodes.Changed()
		node, self, known := p.nodes.Leader(shard)
		switch {
		case known && self:
			return "", nil
		case FromPeer(ctx), !p.nodes.Quorum(shard):
			return "", p.notLed(shard)
		case known:
			return node, nil
		}
		select {
		case <-changed:
		case <-patience.C:
			return "", p.notLed(shard)
		case <-ctx.Done():
			return "", p.notLed(shard)
		}
	}
}

// notLed says that this node knows no leader of a shard which it could ask.
func (p *Proxy) notLed(shard sharding.ShardID) error {
	node, _, _ := p.nodes.Leader(shard)
	return &notLedError{&sharding.NotLeaderError{Shard: shard, Leader: node, Missing: p.nodes.Missing(shard)}}
}

// notLedError: a leader was looked for in vain, so that to look again is of no
// use to a caller who waits.
type notLedError struct{ error }

func (e *notLedError) Unwrap() error { return e.error }

// Remote names the node that leads the shard, where that is another one.
func (p *Proxy) Remote(shard sharding.ShardID) (node sharding.NodeID, known bool) {
	if p.nodes == nil {
		return "", false
	}
	node, self, known := p.nodes.Leader(shard)
	return node, known && !self
}

// Leads reports whether this node leads the shard.
func (p *Proxy) Leads(shard sharding.ShardID) bool {
	if p.nodes == nil {
		return true
	}
	_, self, known := p.nodes.Leader(shard)
	return self && known
}

// Changed is a channel of Nodes, or one that never gets anything.
func (p *Proxy) Changed() <-chan struct{} {
	if p.nodes == nil {
		return nil
	}
	return p.nodes.Changed()
}

// Client returns a client of another node, or fails with
// request.ErrUnreachable.
func (p *Proxy) Client(node sharding.NodeID) (entityv1connect.EntityServiceClient, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clients[node]; c != nil {
		return c, nil
	}
	http, base, err := p.nodes.Client(node)
	if err != nil {
		return nil, request.ErrUnreachable
	}
	if p.clients == nil {
		p.clients = make(map[sharding.NodeID]entityv1connect.EntityServiceClient)
	}
	c := entityv1connect.NewEntityServiceClient(p.hearing(http, node), base+strings.TrimSuffix(Path, "/"),
		connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxMessageBytes))
	p.clients[node] = c
	return c, nil
}

// Cluster is Client with the cluster service, for TailLogs,
// ProfileNode and ProfileGuests.
func (p *Proxy) Cluster(node sharding.NodeID) (clusterv1connect.ClusterServiceClient, error) {
	http, base, err := p.nodes.Client(node)
	if err != nil {
		return nil, request.ErrUnreachable
	}
	return clusterv1connect.NewClusterServiceClient(p.hearing(http, node), base+strings.TrimSuffix(Path, "/"),
		connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxMessageBytes)), nil
}

// maxMessageBytes bounds a message from another node.
const maxMessageBytes = 4 << 20

// Retry reports that a call may do better at the next leader: the node did not
// lead the shard, or was not reached.
func Retry(err error) bool {
	var notLeader *sharding.NotLeaderError
	if errors.As(err, &notLeader) || errors.Is(err, request.ErrUnreachable) {
		return true
	}
	var theirs *connect.Error
	if !errors.As(err, &theirs) {
		return false
	}
	code := theirs.Code()
	return code == connect.CodeUnavailable || !connect.IsWireError(err) && code != connect.CodeDeadlineExceeded && code != connect.CodeCanceled
}

// Ended reports that another node's stream was canceled: when it was not so
// here, it was by the end of that node.
func Ended(err error) bool { return connect.CodeOf(err) == connect.CodeCanceled }

// Proxied is another node's error as the caller gets it: that of a node as it
// is, without what belongs to the call between the nodes, and of the way to it
// that it could not be reached.
func Proxied(err error) error {
	var theirs *connect.Error
	if !errors.As(err, &theirs) {
		return err
	}
	if !connect.IsWireError(err) {
		switch theirs.Code() {
		case connect.CodeDeadlineExceeded:
			return status.ErrLate
		case connect.CodeCanceled:
			return context.Canceled
		}
		return request.ErrUnreachable
	}
	if excluded(theirs) {
		return request.ErrUnreachable
	}
	out := connect.NewError(theirs.Code(), errors.New(theirs.Message()))
	for _, d := range theirs.Details() {
		out.AddDetail(d)
	}
	return out
}

// excluded says whether the other node takes this one for no member of its
// cluster: that is nothing that the caller did.
func excluded(theirs *connect.Error) bool {
	for _, d := range theirs.Details() {
		value, err := d.Value()
		fault, ok := value.(*peerv1.Fault)
		if err == nil && ok && (fault.GetKind() == peerv1.Fault_KIND_NOT_MEMBER || fault.GetKind() == peerv1.Fault_KIND_PUT_DOWN) {
			return true
		}
	}
	return false
}

// Backoff waits between attempts.
type Backoff struct{ next time.Duration }

// Wait takes no longer than ctx, and ends early when something changes.
func (b *Backoff) Wait(ctx context.Context, changed <-chan struct{}) error {
	b.next = min(max(2*b.next, MinPause), MaxPause)
	t := time.NewTimer(b.next)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Search counts the attempts at a shard's leader of which none came to
// anything. It is for one goroutine.
type Search struct {
	began time.Time
	pause Backoff
}

// Found notes an attempt that came to something.
func (s *Search) Found() { *s = Search{} }

// Again waits before the next attempt at the leader of a shard, after one that
// failed with err. It reports false, without a wait, if there is to be none:
// another node asks, this node finds no leader, or for as long as Patience no
// attempt has come to anything.
func (s *Search) Again(ctx context.Context, p *Proxy, shard sharding.ShardID, changed <-chan struct{}, err error) bool {
	if _, vain := errors.AsType[*notLedError](err); vain || FromPeer(ctx) || !p.Quorum(shard) {
		return false
	}
	if now := time.Now(); s.began.IsZero() {
		s.began = now
	} else if now.Sub(s.began) > Patience {
		return false
	}
	return s.pause.Wait(ctx, changed) == nil
}

// Do makes a call that may be repeated at the node that leads the shard: at
// this one when client is nil. It goes to the next leader until ctx ends, and
// as long as Patience while nothing answers.
func Do[Res any](ctx context.Context, p *Proxy, shard sharding.ShardID,
	do func(ctx context.Context, client entityv1connect.EntityServiceClient) (*Res, error)) (*Res, error) {
	var search Search
	for {
		changed := p.Changed()
		node, err := p.find(ctx, shard)
		if err == nil {
			var res *Res
			var client entityv1connect.EntityServiceClient
			if node != "" {
				client, err = p.Client(node)
			}
			if err == nil {
				res, err = do(ctx, client)
			}
			if err == nil || node == "" {
				return res, err
			}
		}
		if !Retry(err) || !search.Again(ctx, p, shard, changed, err) {
			return nil, Proxied(err)
		}
	}
}
