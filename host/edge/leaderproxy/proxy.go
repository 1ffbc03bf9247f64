package leaderproxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/api/gen/hostd/workflow/v1/workflowv1connect"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// Nodes finds the node that leads a shard and calls it. No method blocks.
type Nodes interface {
	// Leader returns the node that leads the shard. self means that this
	// node leads the shard and is ready to serve. known is false if no
	// leader is known.
	Leader(shard sharding.ShardID) (node sharding.NodeID, self, known bool)
	// Quorum is false if no majority of the shard's replicas is reachable from
	// this node, so that no leader can be reached.
	Quorum(shard sharding.ShardID) bool
	// Missing says why the shard may have no leader.
	Missing(shard sharding.ShardID) sharding.Missing
	// Hears reports whether this node considers the other node alive. Changed
	// also signals changes of this result.
	Hears(node sharding.NodeID) bool
	// Changed returns a channel that receives a value, or is closed, when a
	// result that was returned before the call changes.
	Changed() <-chan struct{}
	// Client returns an HTTP client for a node and its base URL.
	Client(node sharding.NodeID) (client *http.Client, baseURL string, err error)
}

// Path is where a node serves the calls that other nodes forward, with Handler.
// It must be mounted so that only nodes can reach it. A call that arrives there
// is never forwarded to a third node.
const Path = "/hostd.hop/"

// Pauses between attempts at the leader of a shard, and the time limit for
// finding one.
const (
	MinPause = 2 * time.Millisecond
	MaxPause = 100 * time.Millisecond
	Patience = request.LeaderPatience
)

// Proxy forwards calls about a shard to the node that leads it. It is safe for
// concurrent use.
//
// A call is forwarded at most once. The view of who leads may be outdated on
// every node, so with longer chains two nodes that each take the other for the
// leader would send a call back and forth. Instead, a node that receives a
// forwarded call and does not lead the shard rejects it, and the first node
// tries again when its view has changed (Search and Do). It stops after
// Patience without an answer, because an election is over by then, or the shard
// has no majority.
type Proxy struct {
	nodes Nodes // nil if this node leads every shard

	mu      sync.Mutex
	clients map[sharding.NodeID]entityv1connect.EntityServiceClient
}

// New makes a proxy. If nodes is nil, this node leads every shard.
func New(nodes Nodes) *Proxy { return &Proxy{nodes: nodes} }

// Alone reports whether there are no other nodes.
func (p *Proxy) Alone() bool { return p.nodes == nil }

// Quorum is false if no leader of the shard can be reached from this node.
func (p *Proxy) Quorum(shard sharding.ShardID) bool { return p.nodes == nil || p.nodes.Quorum(shard) }

// services are the services whose calls are forwarded. Of the module service, only
// VerifyModule and CheckCompatibility are forwarded.
var services = []string{entityv1connect.EntityServiceName, workflowv1connect.WorkflowServiceName, clusterv1connect.ClusterServiceName}

// Handler serves forwarded calls with the handlers of the entity, workflow and
// cluster services, and of VerifyModule and CheckCompatibility.
func Handler(next http.Handler) http.Handler {
	return http.StripPrefix(strings.TrimSuffix(Path, "/"), CurrentPaths(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		forwarded := func(service string) bool { return strings.HasPrefix(r.URL.Path, "/"+service+"/") }
		if !slices.ContainsFunc(services, forwarded) &&
			r.URL.Path != modulev1connect.ModuleServiceVerifyModuleProcedure && r.URL.Path != modulev1connect.ModuleServiceCheckCompatibilityProcedure {
			http.NotFound(w, r)
			return
		}
		said, err := parseStatement(r.Header)
		if err != nil {
			http.Error(w, "the forwarded caller is malformed", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, said)))
	})))
}

// Leader returns a client of the node that leads the shard, or nil if this node
// does. It waits for a leader until ctx ends or for Patience. It does not wait
// if there is no quorum, or if the call was forwarded, because the forwarding
// node retries.
func (p *Proxy) Leader(ctx context.Context, shard sharding.ShardID) (entityv1connect.EntityServiceClient, error) {
	node, err := p.find(ctx, shard)
	if node == "" || err != nil {
		return nil, err
	}
	return p.Client(node)
}

// LeaderModules is Leader for the module service, for VerifyModule and
// CheckCompatibility.
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

// find returns the node that leads the shard, or "" if this node does.
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

// notLed makes the error for a shard whose leader this node cannot ask.
func (p *Proxy) notLed(shard sharding.ShardID) error {
	node, _, _ := p.nodes.Leader(shard)
	return &notLedError{&sharding.NotLeaderError{Shard: shard, Leader: node, Missing: p.nodes.Missing(shard)}}
}

// notLedError marks an error after find has waited for a leader, so that
// Search.Again does not wait a second time.
type notLedError struct{ error }

func (e *notLedError) Unwrap() error { return e.error }

// Remote returns the node that leads the shard, if it is not this one.
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

// Changed returns the channel of Nodes.Changed, or a channel that never receives.
func (p *Proxy) Changed() <-chan struct{} {
	if p.nodes == nil {
		return nil
	}
	return p.nodes.Changed()
}

// Client returns a client of a node, or fails with request.ErrUnreachable.
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

// Cluster is Client for the cluster service, for TailLogs, ProfileNode and
// ProfileGuests.
func (p *Proxy) Cluster(node sharding.NodeID) (clusterv1connect.ClusterServiceClient, error) {
	http, base, err := p.nodes.Client(node)
	if err != nil {
		return nil, request.ErrUnreachable
	}
	return clusterv1connect.NewClusterServiceClient(p.hearing(http, node), base+strings.TrimSuffix(Path, "/"),
		connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxMessageBytes)), nil
}

// workflows is Client for the workflow service.
func (p *Proxy) workflows(node sharding.NodeID) (workflowv1connect.WorkflowServiceClient, error) {
	http, base, err := p.nodes.Client(node)
	if err != nil {
		return nil, request.ErrUnreachable
	}
	return workflowv1connect.NewWorkflowServiceClient(p.hearing(http, node), base+strings.TrimSuffix(Path, "/"),
		connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxMessageBytes)), nil
}

// maxMessageBytes limits a message from a different node.
const maxMessageBytes = 4 << 20

// Retry reports whether a call may succeed at the next leader, because the node
// did not lead the shard or was not reached.
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

// IsCanceled reports whether the stream of a different node was cancelled. If it was
// not cancelled here, that node is stopping.
func IsCanceled(err error) bool { return connect.CodeOf(err) == connect.CodeCanceled }

// CallerError converts the error of a forwarded call for the caller. An
// error that the called node returned is passed on without the metadata of
// the call between the nodes; a transport error becomes
// request.ErrUnreachable.
func CallerError(err error) error {
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
	if isExcluded(theirs) {
		return request.ErrUnreachable
	}
	out := connect.NewError(theirs.Code(), errors.New(theirs.Message()))
	for _, d := range theirs.Details() {
		out.AddDetail(d)
	}
	return out
}

// isExcluded reports whether the called node does not accept this node as a
// member of its cluster, which is not the caller's fault.
func isExcluded(theirs *connect.Error) bool {
	for _, d := range theirs.Details() {
		value, err := d.Value()
		fault, ok := value.(*peerv1.Fault)
		if err == nil && ok && (fault.GetKind() == peerv1.Fault_KIND_NOT_MEMBER || fault.GetKind() == peerv1.Fault_KIND_PUT_DOWN) {
			return true
		}
	}
	return false
}

// Backoff waits between attempts. Each wait is twice as long as the previous
// one, from MinPause to MaxPause.
type Backoff struct{ next time.Duration }

// Wait ends early if ctx ends, with its error, or if changed receives.
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

// Search tracks the successive failed attempts at a shard's leader. It must be
// used by one goroutine.
type Search struct {
	began time.Time
	pause Backoff
}

// Reset records an attempt that made progress.
func (s *Search) Reset() { *s = Search{} }

// Again waits before the next attempt at the leader of a shard, after an attempt that
// failed with err. It returns false immediately if there should be no further
// attempt: the call was forwarded by a different node, no leader can be found,
// or no attempt has made progress for longer than Patience.
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

// Do makes a call, which must be safe to repeat, at the node that leads the
// shard: at this node if client is nil. It retries at the next leader until ctx
// ends, for at most Patience without an answer.
func Do[Res any](ctx context.Context, p *Proxy, shard sharding.ShardID,
	do func(ctx context.Context, client entityv1connect.EntityServiceClient) (*Res, error)) (*Res, error) {
	return callLeader(ctx, p, shard, p.Client, do)
}

// DoWorkflow is Do for a call of the workflow service.
func DoWorkflow[Res any](ctx context.Context, p *Proxy, shard sharding.ShardID,
	do func(ctx context.Context, client workflowv1connect.WorkflowServiceClient) (*Res, error)) (*Res, error) {
	return callLeader(ctx, p, shard, p.workflows, do)
}

func callLeader[Client, Res any](ctx context.Context, p *Proxy, shard sharding.ShardID, connectTo func(sharding.NodeID) (Client, error),
	do func(ctx context.Context, client Client) (*Res, error)) (*Res, error) {
	var search Search
	for {
		changed := p.Changed()
		node, err := p.find(ctx, shard)
		if err == nil {
			var res *Res
			var client Client
			if node != "" {
				client, err = connectTo(node)
			}
			if err == nil {
				res, err = do(ctx, client)
			}
			if err == nil || node == "" {
				return res, err
			}
		}
		if !Retry(err) || !search.Again(ctx, p, shard, changed, err) {
			return nil, CallerError(err)
		}
	}
}
