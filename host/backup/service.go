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

// Options of a Service; all are required.
type Options struct {
	Self    sharding.NodeID
	Cluster string
	Shards  uint32 // data shards
	Part    *Part  // of this node
	// Leader names the node that leads a shard.
	Leader func(shard sharding.ShardID) (node sharding.NodeID, known bool)
	// Client calls the part of another node.
	Client   func(node sharding.NodeID) (client *http.Client, baseURL string, err error)
	Metadata *cluster.Metadata
	Modules  Modules
	Rollouts Rollouts
	Logger   *slog.Logger
}

// Modules are those of the cluster.
type Modules interface {
	Download(ctx context.Context, digest journal.Digest, w io.Writer) error
	Upload(ctx context.Context, u modules.Upload) (modules.Module, error)
	Activate(ctx context.Context, a modules.Activation) (modules.Activated, error)
}

// Rollouts are modules that serve a part of a type.
type Rollouts interface {
	// Restore begins the rollout that a type had in another cluster, and returns
	// it as it is here: paused, or aborted but for entities that stay. It is nil
	// where there is nothing left of it.
	Restore(ctx context.Context, entityType string, was meta.Rollout, proved []meta.Digest) (*meta.Rollout, error)
}

// Service exports the cluster and imports into it, whichever nodes lead its
// shards. It is safe for concurrent use.
type Service struct {
	opts  Options
	parts *allParts
}

// NewService makes a Service. It takes no part over.
func NewService(opts Options) *Service {
	return &Service{opts: opts, parts: &allParts{
		count: opts.Shards, leader: opts.Leader, logger: opts.Logger,
		node: func(name sharding.NodeID) (node, error) {
			if name == opts.Self {
				return local{opts.Part}, nil
			}
			client, base, err := opts.Client(name)
			if err != nil {
				return nil, err
			}
			return remoteAt(client, base), nil
		},
	}}
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
	// ClusterVersion is that of the cluster, and so of what the parts have; 0 is Level1.
	Level sharding.ClusterVersion `json:"level,omitempty"`
	// From sharding.VersionRoles on: the metadata has none before.
	Roles        []access.Role    `json:"roles,omitempty"`
	RoleBindings []access.Binding `json:"roleBindings,omitempty"`
}

// describedCluster is the cluster that an export was made of, in the file.
type describedCluster struct {
	ID     string `json:"id"`
	Shards uint32 `json:"shards"`
}

// describedSetting is one setting of the cluster, in the file.
type describedSetting struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Export writes a file of everything that was acknowledged before some moment
// of the call. After an error what was written is no file.
func (s *Service) Export(ctx context.Context, w io.Writer) error {
	var id archive.ID
	rand.Read(id[:]) // never fails
	sum, err := s.parts.export(ctx, id, w, s.describe, s.opts.Modules.Download)
	if err != nil {
		return publicError(err)
	}
	s.opts.Logger.Info("the cluster was exported", "entities", sum.Entities, "bytes", sum.Bytes, "digest", hex.EncodeToString(sum.Digest[:]))
	return nil
}

func (s *Service) describe(ctx context.Context) (cluster []byte, modules []journal.Digest, err error) {
	if err := s.opts.Metadata.CatchUp(ctx); err != nil {
		return nil, nil, err
	}
	view := s.opts.Metadata.View()
	d := description{
		Cluster: describedCluster{ID: s.opts.Cluster, Shards: s.opts.Shards}, ExportedAt: time.Now().UTC(), Release: telemetry.Version(),
		Modules: view.Modules(), Bindings: view.Bindings(), Settings: []describedSetting{},
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
		d.Modules[i].UnusedSince = 0 // that is of this cluster alone
		modules = append(modules, journal.Digest(d.Modules[i].Digest))
	}
	cluster, err = json.Marshal(d)
	return cluster, modules, err
}

// Import brings a file into a cluster that has never held anything. Types are
// bound when everything else is there, and the shards open after that. A file
// that cannot be read is an *InvalidFileError. Roles that reach the verb
// security come along withBindings only.
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
	s.opts.Logger.Info("a cluster was imported", "entities", sum.Entities, "bytes", sum.Bytes, "digest", hex.EncodeToString(sum.Digest[:]), "left_out", in.leftOut)
	return Imported{Entities: sum.Entities, Shards: sum.Shards, Modules: sum.Modules, Digest: hex.EncodeToString(sum.Digest[:]), InPart: in.inPart(), LeftOut: in.leftOut}, nil
}

// publicError gives what callers can do something about its code.
func publicError(err error) error {
	switch {
	case errors.Is(err, ErrNotEmpty):
		return &status.RefusedError{Reason: err.Error()}
	case errors.Is(err, archive.ErrDamaged), errors.Is(err, archive.ErrUnsupported):
		return &InvalidFileError{Reason: err.Error()}
	case errors.Is(err, ErrUnsettled), errors.Is(err, ErrTooMany), errors.Is(err, ErrUnknownCut), errors.Is(err, ErrUnknownOutcome), errors.Is(err, ErrUnreachable):
		return fmt.Errorf("%w: %w", status.ErrNoMajority, err)
	}
	return err
}
