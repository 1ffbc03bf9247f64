package backup

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/archive"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
)

// leaders knows the leaders of shards.
type leaders interface {
	// Leader returns the node that leads a shard.
	Leader(shard sharding.ShardID) (node sharding.NodeID, self, known bool)
}

// connector connects to other nodes.
type connector interface {
	// Client returns a client for the part of another node.
	Client(node sharding.NodeID) (client *http.Client, baseURL string, err error)
}

// Options configures a Service. All fields are required.
type Options struct {
	Self     sharding.NodeID
	Cluster  string
	Shards   uint32 // number of data shards
	Part     *Part  // this node's part
	Leaders  leaders
	Peers    connector
	Metadata *cluster.Metadata
	Modules  Modules
	Rollouts rollouts
	Logger   *slog.Logger
}

// Modules are the modules of the cluster.
type Modules interface {
	Download(ctx context.Context, digest journal.Digest, w io.Writer) error
	Upload(ctx context.Context, u modules.Upload) (modules.Module, error)
	Activate(ctx context.Context, a modules.Activation) (modules.Activated, error)
}

// rollouts manages modules that serve a type in part.
type rollouts interface {
	// Restore starts the rollout that a type had in another cluster. It returns
	// the resulting rollout in this cluster: paused, or aborted except for
	// entities that stay with the second module. It returns nil if nothing is
	// left of the rollout.
	Restore(ctx context.Context, entityType string, was meta.Rollout, proved []meta.Digest) (*meta.Rollout, error)
}

// Service exports the cluster and imports into it, no matter which nodes lead
// its shards. It is safe for concurrent use.
type Service struct {
	opts  Options
	parts *allParts
}

// NewService returns a Service. It does not take ownership of the Part.
func NewService(opts Options) *Service {
	return &Service{opts: opts, parts: &allParts{
		count: opts.Shards, leaders: opts.Leaders, logger: opts.Logger, nodes: clusterNodes{&opts},
	}}
}

// clusterNodes are the nodes of the cluster.
type clusterNodes struct{ opts *Options }

func (c clusterNodes) node(name sharding.NodeID) (node, error) {
	if name == c.opts.Self {
		return local{c.opts.Part}, nil
	}
	client, base, err := c.opts.Peers.Client(name)
	if err != nil {
		return nil, err
	}
	return remoteAt(client, base), nil
}

// description is the first block of an archive. A reader must reject unknown
// members, because by ignoring them it would import something other than what
// was exported.
type description struct {
	Cluster    describedCluster   `json:"cluster"`
	ExportedAt time.Time          `json:"exportedAt"`
	Release    string             `json:"release"`
	Modules    []meta.Module      `json:"modules"`
	Bindings   []meta.Activation  `json:"bindings"`
	Settings   []describedSetting `json:"settings"`
	// Level is the cluster's version, which is also the version of the parts; 0
	// means 1.
	Level sharding.ClusterVersion `json:"level,omitempty"`
	// Since sharding.VersionRoles; empty in archives of earlier versions.
	Roles        []access.Role    `json:"roles,omitempty"`
	RoleBindings []access.Binding `json:"roleBindings,omitempty"`
}

// describedCluster is the exported cluster, as described in the file.
type describedCluster struct {
	ID     string `json:"id"`
	Shards uint32 `json:"shards"`
}

// describedSetting is a setting of the cluster, as described in the file.
type describedSetting struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Export writes a file that contains everything acknowledged before some moment
// during the call. If it returns an error, the output is not a valid file.
func (s *Service) Export(ctx context.Context, w io.Writer) error {
	var id archive.ID
	rand.Read(id[:]) // never fails
	sum, err := s.parts.export(ctx, id, w, s.describe, s.opts.Modules.Download)
	if err != nil {
		return publicError(err)
	}
	s.opts.Logger.Info("exported the cluster", "entities", sum.Entities, "bytes", sum.Bytes, "digest", hex.EncodeToString(sum.Digest[:]))
	return nil
}

func (s *Service) describe(ctx context.Context) (cluster []byte, modules []journal.Digest, err error) {
	if err := s.opts.Metadata.CatchUp(ctx); err != nil {
		return nil, nil, err
	}
	view := s.opts.Metadata.View()
	d := description{
		Cluster: describedCluster{ID: s.opts.Cluster, Shards: s.opts.Shards}, ExportedAt: time.Now().UTC(), Release: telemetry.Version(),
		Modules: view.Modules(), Bindings: view.Activations(), Settings: []describedSetting{},
		Roles: view.Roles(), RoleBindings: carriedBindings(view),
	}
	if level := view.ClusterVersion(); level > sharding.Version1 {
		d.Level = level
	}
	for _, key := range view.SettingKeys() {
		set, _ := view.Setting(key)
		d.Settings = append(d.Settings, describedSetting{Key: key, Value: set.Value})
	}
	for i := range d.Modules {
		d.Modules[i].UnusedSince = 0 // only meaningful in this cluster
		modules = append(modules, journal.Digest(d.Modules[i].Digest))
	}
	cluster, err = json.Marshal(d)
	return cluster, modules, err
}

// Import imports a file into a cluster that has never held anything. It
// activates modules after all entities were imported, and opens the shards
// after that. If the file is invalid, the error is an *invalidFileError. Roles
// that allow the verb security are imported only if withBindings is set.
func (s *Service) Import(ctx context.Context, r io.Reader, withBindings bool) (Imported, error) {
	in := &importing{Options: s.opts, withBindings: withBindings, parts: s.parts, ctx: ctx}
	defer in.close()
	sum, err := archive.Read(r, in, nil)
	if err == nil {
		err = in.finish()
	}
	if err != nil {
		return Imported{}, publicError(err)
	}
	s.opts.Logger.Info("imported a cluster", "entities", sum.Entities, "bytes", sum.Bytes, "digest", hex.EncodeToString(sum.Digest[:]), "left_out", in.omitted)
	return Imported{Entities: sum.Entities, Shards: sum.Shards, Modules: sum.Modules, Digest: hex.EncodeToString(sum.Digest[:]), PausedRollouts: in.pausedRollouts(), Omitted: in.omitted}, nil
}

// publicError converts errors that callers can act on to errors with a status.
func publicError(err error) error {
	switch {
	case errors.Is(err, errNotEmpty):
		return &status.RefusedError{Reason: err.Error()}
	case errors.Is(err, archive.ErrDamaged), errors.Is(err, archive.ErrUnsupported):
		return &invalidFileError{Reason: err.Error()}
	case errors.Is(err, errUnsettled), errors.Is(err, errTooMany), errors.Is(err, errUnknownCut), errors.Is(err, errUnknownOutcome), errors.Is(err, errUnreachable):
		return fmt.Errorf("%w: %w", status.ErrNoMajority, err)
	}
	return err
}
