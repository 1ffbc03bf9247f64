package host

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/host/transfer"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/archive"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

const transferPath = "/" + peerv1connect.TransferServiceName + "/"

// transferService exports the cluster and imports into it.
type transferService struct{ n *Node }

// newPart makes this node's part of exports and imports.
func (n *Node) newPart() *transfer.Part {
	return transfer.NewPart(transfer.PartOptions{
		Log: &n.raft, Machine: n.machine, Logger: n.logger,
		Leads: func(shard sharding.ShardID) (sharding.Term, bool) {
			lead := n.region.Lead(shard)
			return lead.Term, lead.Serving
		},
	})
}

// serveTransfers serves other nodes' exports and imports.
func (n *Node) serveTransfers(w http.ResponseWriter, r *http.Request) {
	if !n.joined.Load() {
		http.Error(w, errJoining.Error(), http.StatusServiceUnavailable)
		return
	}
	n.transferred.ServeHTTP(w, r)
}

// openTransfers opens the way to the parts of all nodes.
func (n *Node) openTransfers() {
	_, handler := transfer.Handler(n.part)
	n.transferred = n.peers.Admit(handler)
	n.transfers = transfer.NewCluster(transfer.Options{
		Shards: n.id.Shards, Logger: n.logger,
		Leader: func(shard sharding.ShardID) (sharding.NodeID, bool) {
			node, _, known := n.leaders.Leader(shard)
			return node, known
		},
		Node: func(node sharding.NodeID) (transfer.Node, error) {
			if node == n.id.Node {
				return transfer.Here(n.part), nil
			}
			client, base, err := n.peers.Client(node)
			if err != nil {
				return nil, err
			}
			return transfer.There(client, base), nil
		},
	})
}

// description is the first block of an archive. Members that a release does
// not know are a fault: to leave them out would be to import something else.
type description struct {
	Cluster    describedCluster   `json:"cluster"`
	ExportedAt time.Time          `json:"exportedAt"`
	Release    string             `json:"release"`
	Modules    []meta.Module      `json:"modules"`
	Bindings   []meta.Binding     `json:"bindings"`
	Settings   []describedSetting `json:"settings"`
}

type describedCluster struct {
	ID     string `json:"id"`
	Shards uint32 `json:"shards"`
}

type describedSetting struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Export implements rpc.Transfers.
func (s transferService) Export(ctx context.Context, w io.Writer) error {
	var id archive.ID
	rand.Read(id[:]) // never fails
	sum, err := s.n.transfers.Export(ctx, id, w, s.describe)
	if err != nil {
		return transferError(err)
	}
	s.n.logger.Info("the cluster was exported", "entities", sum.Entities, "bytes", sum.Bytes, "digest", hex.EncodeToString(sum.Digest[:]))
	return nil
}

func (s transferService) describe(ctx context.Context, module func(journal.Digest, []byte)) ([]byte, error) {
	n := s.n
	if err := n.metadata.CatchUp(ctx); err != nil {
		return nil, err
	}
	view := n.metadata.View()
	d := description{
		Cluster: describedCluster{ID: n.id.Cluster, Shards: n.id.Shards}, ExportedAt: time.Now().UTC(), Release: telemetry.Version(),
		Modules: view.Modules(), Bindings: view.Bindings(), Settings: []describedSetting{},
	}
	for _, key := range view.SettingKeys() {
		set, _ := view.Setting(key)
		d.Settings = append(d.Settings, describedSetting{Key: key, Value: set.Value})
	}
	for i := range d.Modules {
		digest := journal.Digest(d.Modules[i].Digest)
		if err := n.fetch(ctx, digest, ""); err != nil {
			return nil, err
		}
		wasm, err := n.modules.Get(digest)
		if err != nil {
			return nil, err
		}
		module(digest, wasm)
	}
	return json.Marshal(d)
}

// Import implements rpc.Transfers. Types are bound when everything else is
// there, and the shards open after that.
func (s transferService) Import(ctx context.Context, r io.Reader) (rpc.Imported, error) {
	in := &importing{n: s.n, ctx: ctx}
	defer in.close()
	sum, err := archive.Read(r, in, nil)
	if err == nil {
		err = in.finish()
	}
	if err != nil {
		return rpc.Imported{}, transferError(err)
	}
	s.n.logger.Info("a cluster was imported", "entities", sum.Entities, "bytes", sum.Bytes, "digest", hex.EncodeToString(sum.Digest[:]))
	return rpc.Imported{Entities: sum.Entities, Shards: sum.Shards, Modules: sum.Modules, Digest: hex.EncodeToString(sum.Digest[:])}, nil
}

// bindTime bounds the activation of a type: every node compiles its module.
const bindTime = 5 * time.Minute

// importing takes an archive into the cluster.
type importing struct {
	n       *Node
	ctx     context.Context
	about   description
	rules   map[string]sharding.KeyRule
	modules int
	claimed bool
	to      *transfer.Import
}

func (in *importing) close() {
	if in.to != nil {
		in.to.Close()
	}
}

// Cluster implements archive.Sink.
func (in *importing) Cluster(id archive.ID, text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in.about); err != nil {
		return fmt.Errorf("%w: what it says of the cluster: %w", archive.ErrUnsupported, err)
	}
	in.rules = make(map[string]sharding.KeyRule, len(in.about.Bindings))
	for _, b := range in.about.Bindings {
		in.rules[b.EntityType] = b.ShardKey
	}
	n := in.n
	if err := n.metadata.CatchUp(in.ctx); err != nil {
		return err
	}
	to, begun, err := n.transfers.Begin(in.ctx, id, func(e sharding.EntityID) sharding.ShardID {
		return in.rules[e.Type].ShardOf(e, n.id.Shards)
	})
	if err != nil {
		return err
	}
	in.to = to
	if !begun && len(n.metadata.View().Bindings()) > 0 {
		return fmt.Errorf("%w: it serves entity types", transfer.ErrNotEmpty)
	}
	return nil
}

// Module implements archive.Sink.
func (in *importing) Module(digest journal.Digest, wasm []byte) error {
	if _, known := in.n.metadata.View().Module(meta.Digest(digest)); known {
		in.modules++
		return nil
	}
	ctx, cancel := context.WithTimeout(in.ctx, bindTime)
	defer cancel()
	got, err := moduleService{in.n}.Upload(ctx, wasm)
	if err != nil {
		return fmt.Errorf("upload module %s: %w", digest, err)
	}
	if got.Digest != digest {
		return fmt.Errorf("%w: a module has another digest", archive.ErrDamaged)
	}
	in.modules++
	return nil
}

// Begin implements archive.Sink.
func (in *importing) Begin(archive.Shard) error {
	if in.modules < len(in.about.Modules) {
		return fmt.Errorf("%w: it lacks modules", archive.ErrDamaged)
	}
	if in.claimed {
		return nil
	}
	in.claimed = true
	return in.to.Claim()
}

// Part implements archive.Sink.
func (in *importing) Part(kind journal.PartKind, data []byte) error { return in.to.Part(kind, data) }

// End implements archive.Sink.
func (in *importing) End(archive.Shard) error { return nil }

func (in *importing) finish() error {
	if err := in.to.Flush(); err != nil {
		return err
	}
	n := in.n
	for _, set := range in.about.Settings {
		if have, ok := n.metadata.View().Setting(set.Key); ok && bytes.Equal(have.Value, set.Value) {
			continue
		}
		if _, err := n.metadata.Do(in.ctx, meta.PutSetting(set.Key, set.Value)); err != nil {
			return fmt.Errorf("import setting %s: %w", set.Key, err)
		}
	}
	if err := n.metadata.CatchUp(in.ctx); err != nil {
		return err
	}
	for _, b := range in.about.Bindings {
		if err := in.bind(b); err != nil {
			return fmt.Errorf("bind entity type %s: %w", b.EntityType, err)
		}
	}
	return in.to.Finish()
}

// bind binds a type to what served it, in turn, unless that is done.
func (in *importing) bind(b meta.Binding) error {
	n := in.n
	ctx, cancel := context.WithTimeout(in.ctx, bindTime)
	defer cancel()
	if have, ok := n.metadata.View().Binding(b.EntityType); ok && have.Digest == b.Digest && have.Limits == b.Limits {
		return nil
	}
	for _, h := range b.History {
		if _, err := n.metadata.Do(ctx, meta.Bind(b.EntityType, h.Digest, h.At)); err != nil {
			return err
		}
	}
	limits := rpc.Limits(b.Limits)
	_, err := moduleService{n}.Activate(ctx, b.EntityType, journal.Digest(b.Digest), &limits)
	return err
}

// transferError gives what callers can do something about its code.
func transferError(err error) error {
	switch {
	case errors.Is(err, transfer.ErrNotEmpty):
		return &rpc.RefusedError{Reason: err.Error()}
	case errors.Is(err, archive.ErrDamaged), errors.Is(err, archive.ErrUnsupported):
		return &rpc.InvalidFileError{Reason: err.Error()}
	case errors.Is(err, transfer.ErrUnsettled), errors.Is(err, transfer.ErrTooMany), errors.Is(err, transfer.ErrUnknownCut),
		errors.Is(err, transfer.ErrUnknownOutcome), errors.Is(err, transfer.ErrUnreachable):
		return fmt.Errorf("%w: %w", rpc.ErrNoMajority, err)
	}
	return err
}
