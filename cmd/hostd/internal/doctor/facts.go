package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// Bounds of the gathered facts.
const (
	maxNodes       = 256
	maxTypes       = 1000
	maxQuarantined = 100 // limit for each type; more entities are counted as "at least"
	// Nodes, shards and types are asked concurrently, so that a call that
	// hangs does not take time from other calls.
	nodePatience   = 3 * time.Second
	shardsPatience = 3 * time.Second
	typesPatience  = 3 * time.Second // time limit for the calls about all types
	maxReadyBytes  = 16 << 10
)

// facts are what is known about a cluster and its nodes. A nil or empty member
// is unknown.
type facts struct {
	Now     time.Time // clock of the machine that runs the command
	Cluster *clusterv1.GetClusterResponse
	Shards  []*clusterv1.Shard
	Nodes   []nodeFacts
	Types   []typeFacts
	// Gaps say what could not be looked at, and why.
	Gaps []Gap
}

// Gap is something that could not be looked at.
type Gap struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// nodeFacts are the answers of a node about itself.
type nodeFacts struct {
	ID, Address string
	Err         error // why the node was not reached or is not trusted
	NotReady    string
	// CertUntil is when the node's server certificate or an authority above
	// it ends, whichever is first; zero without TLS.
	CertUntil time.Time
	// Ahead is how far the node's clock is ahead of this machine's, with an
	// error of at most AheadError.
	Ahead, AheadError time.Duration
	Metrics           samples // nil if it does not show them to this caller
}

// typeFacts is an entity type that modules serve.
type typeFacts struct {
	Name        string
	Quarantined []string // ids
	More        bool     // there are more than Quarantined
	Rollout     *modulev1.Rollout
	Aborted     string // why the last rollout was aborted
}

// gather reads the facts through a session, and asks each member directly. An
// error means that the cluster itself did not answer within patience.
func gather(ctx context.Context, s *cli.Session, patience time.Duration, base func(address string) string, asker *http.Client) (*facts, error) {
	f := &facts{Now: time.Now()}
	first, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	if f.Cluster, err = s.Cluster(first); err != nil {
		return f, err
	}
	members := f.Cluster.GetMembers()
	f.Nodes = make([]nodeFacts, min(len(members), maxNodes))
	var asked sync.WaitGroup
	for i := range f.Nodes {
		asked.Go(func() {
			m := members[i]
			f.Nodes[i] = ask(ctx, asker, m.GetNodeId(), base(m.GetAddress()))
		})
	}
	var noShards error
	asked.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, shardsPatience)
		defer cancel()
		f.Shards, noShards = s.Shards(ctx)
	})
	f.readTypes(ctx, s)
	asked.Wait()
	if noShards != nil {
		f.gap("shards", noShards)
	}
	for _, n := range f.Nodes {
		if n.Err == nil && n.Metrics == nil {
			f.gap("metrics of "+n.ID, errors.New("the node shows them only on its own machine or on health-listen; run 'hostd doctor' there"))
		}
	}
	return f, nil
}

func (f *facts) gap(what string, err error) {
	f.Gaps = append(f.Gaps, Gap{what, cli.Clean(err.Error())})
}

// readTypes reads the quarantined entities and the rollout of each type.
func (f *facts) readTypes(ctx context.Context, s *cli.Session) {
	ctx, cancel := context.WithTimeout(ctx, typesPatience)
	defer cancel()
	modules, err := s.Modules(ctx)
	if err != nil {
		f.gap("entity types", err)
		return
	}
	for _, m := range modules {
		for _, name := range m.GetActiveFor() {
			if len(f.Types) == maxTypes {
				f.gap("further entity types", fmt.Errorf("only %d are checked", maxTypes))
				return
			}
			f.Types = append(f.Types, typeFacts{Name: name})
		}
	}
	for i := range f.Types {
		switch err := f.Types[i].read(ctx, s); {
		case ctx.Err() != nil:
			f.gap(fmt.Sprintf("%d of %d entity types", len(f.Types)-i, len(f.Types)), fmt.Errorf("they did not answer within %v", typesPatience))
			return
		case err != nil:
			f.gap("entity type "+f.Types[i].Name, err)
		}
	}
}

func (t *typeFacts) read(ctx context.Context, s *cli.Session) error {
	for e, err := range s.List(ctx, &entityv1.ListEntitiesRequest{EntityType: t.Name, Status: "quarantined"}) {
		if err != nil {
			return err
		}
		if t.More = len(t.Quarantined) == maxQuarantined; t.More {
			break
		}
		t.Quarantined = append(t.Quarantined, e.GetEntityId())
	}
	now, err := client.RolloutState(ctx, s.Client, t.Name)
	if client.CodeOf(err) == connect.CodeNotFound {
		return nil
	}
	t.Rollout, t.Aborted = now.GetRollout(), now.GetAborted()
	return err
}

// ask asks a node for its readiness, its clock, its certificate and its metrics.
func ask(ctx context.Context, asker *http.Client, id, base string) nodeFacts {
	n := nodeFacts{ID: id, Address: base}
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	began := time.Now()
	res, body, err := get(ctx, asker, base+"/readyz", maxReadyBytes)
	if err != nil {
		n.Err = err
		return n
	}
	took := time.Since(began)
	if res.StatusCode != http.StatusOK {
		n.NotReady = strings.TrimSpace(string(body))
	}
	if at, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		// The header has whole seconds, and was written while the call ran.
		n.Ahead = at.Add(500 * time.Millisecond).Sub(began.Add(took / 2))
		n.AheadError = 500*time.Millisecond + took/2
	}
	n.CertUntil = validUntil(res.TLS)
	if res, body, err := get(ctx, asker, base+"/metrics", maxMetricsBytes); err == nil && res.StatusCode == http.StatusOK {
		n.Metrics = parseMetrics(body)
	}
	return n
}

// get reads a response of at most most bytes.
func get(ctx context.Context, asker *http.Client, url string, most int64) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	res, err := asker.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, most))
	return res, body, err
}

// validUntil returns when the first certificate of a verified chain ends.
func validUntil(state *tls.ConnectionState) (until time.Time) {
	if state == nil {
		return until
	}
	for _, c := range state.PeerCertificates {
		if until.IsZero() || c.NotAfter.Before(until) {
			until = c.NotAfter
		}
	}
	return until
}
