package offline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/raftgroup/offline"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// RebuildMetadata rebuilds the metadata from the files that Inspect wrote about
// every remaining node, and restarts the metadata shard with it on this stopped
// node, as the shard's only replica. All other nodes must discard their
// replicas of it with RejoinMetadata before any of them starts, because a
// majority of the old replicas would continue with the old metadata. It prints
// to out what it did. If it is interrupted, the node refuses to start until
// RebuildMetadata is repeated with the same files.
func RebuildMetadata(dir string, files []string, out io.Writer) error {
	lock, err := datadir.Lock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	id, err := datadir.ReadIdentity(dir)
	if err != nil {
		return err
	}
	if id.Cluster == "" {
		return errors.New("the node has not joined a cluster: start with a node that has")
	}
	f, err := planBootstrap(&id, files)
	if err != nil {
		return err
	}
	if !id.Rebuilding {
		id.Rebuilding = true
		if err := id.Write(dir); err != nil {
			return err
		}
	}
	if err := withLog(dir, func(rec *recovery.Recovered, log *wal.Log) error {
		return offline.RestartGroup(rec, log, disk.OS{}, filepath.Join(dir, datadir.SnapshotDir), f.bootstrap)
	}); err != nil {
		if errors.Is(err, offline.ErrReplicaExists) {
			err = fmt.Errorf("%w: the files are older than this node's data: inspect all nodes again", err)
		}
		return err
	}
	id.Rebuilding, id.Rejoin = false, ""
	id.MetaReplica, id.MetaVoters = f.bootstrap.Replica, []sharding.ReplicaID{f.bootstrap.Replica}
	if err := id.Write(dir); err != nil {
		return err
	}
	f.describe(out)
	return nil
}

// newBootstrap is the state with which the metadata shard begins again.
type newBootstrap struct {
	state     *meta.State
	bootstrap offline.Restart
	base      *remains // the file whose metadata was used; nil if none
}

// planBootstrap decides the new state of the metadata shard. The decision
// depends only on the files, so that a repetition decides the same.
func planBootstrap(id *datadir.Identity, names []string) (newBootstrap, error) {
	all, err := readRemains(names)
	if err != nil {
		return newBootstrap{}, err
	}
	self := slices.IndexFunc(all, func(r *remains) bool { return r.Node == id.Node })
	switch {
	case self < 0:
		return newBootstrap{}, fmt.Errorf("the file of this node, %s, is missing: inspect it too", id.Node)
	case all[self].Disk != id.Disk || all[self].Incarnation != id.Incarnation:
		return newBootstrap{}, fmt.Errorf("node %s was started after its file was created: stop all nodes and inspect them again", id.Node)
	}
	f := newBootstrap{base: newestMetadata(all)}
	base, pairs := meta.New(), []meta.KV(nil)
	if f.base != nil {
		pairs = f.base.pairs()
		if err := base.Load(0, pairs); err != nil {
			return f, err
		}
	}
	cluster, created := base.View().Cluster()
	if !created {
		cluster = meta.Cluster{ID: id.Cluster, Format: datadir.ClusterFormat, Shards: id.Shards}
	}
	r := coordinator.Remains{Cluster: cluster, Metadata: pairs, BootstrapNode: id.Node}
	var index uint64
	var term sharding.Term
	for _, n := range all {
		r.Nodes = append(r.Nodes, n.nodeRemains(base.View()))
		i, t := n.end()
		index, term = max(index, i), max(term, t)
	}
	if f.state, err = coordinator.Rebuild(r); err != nil {
		return f, err
	}
	p, _ := f.state.View().Placement(sharding.MetaShard)
	f.bootstrap = offline.Restart{
		Shard: sharding.MetaShard, Replica: p.Replicas[0].ID, Index: index + 1, Term: term + 1,
		State: metadataStream(f.state, index+1, term+1),
	}
	return f, nil
}

// readRemains reads the files, one for each node.
func readRemains(names []string) ([]*remains, error) {
	var all []*remains
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		r := &remains{}
		if err := json.Unmarshal(data, r); err != nil {
			return nil, fmt.Errorf("%s is not a complete file of 'hostd recover --inspect': %w", filepath.Base(name), err)
		}
		if r.Version != remainsVersion || r.Node == "" {
			return nil, fmt.Errorf("%s has version %d, this release reads %d", filepath.Base(name), r.Version, remainsVersion)
		}
		all = append(all, r)
	}
	return all, nil
}

// newestMetadata returns the file with the metadata that would win a raft
// election, or nil if no file has metadata.
func newestMetadata(all []*remains) (newest *remains) {
	for _, r := range all {
		if r.Metadata == nil {
			continue
		}
		if newest == nil || cmp.Or(cmp.Compare(r.Metadata.Term, newest.Metadata.Term), cmp.Compare(r.Metadata.Index, newest.Metadata.Index)) > 0 {
			newest = r
		}
	}
	return newest
}

func (r *remains) pairs() []meta.KV {
	var out []meta.KV
	for _, p := range r.Metadata.Pairs {
		out = append(out, meta.KV{Key: []byte(p.Key), Value: []byte(p.Value)})
	}
	return out
}

// end returns the last index of the metadata shard on the node, and the highest
// term that the node has seen there.
func (r *remains) end() (index uint64, term sharding.Term) {
	for _, c := range r.Replicas {
		if c.Shard == sharding.MetaShard {
			index, term = c.Index, c.Term
		}
	}
	if r.Metadata != nil {
		index, term = max(index, r.Metadata.Index), max(term, r.Metadata.Term)
	}
	return index, term
}

func (f *newBootstrap) describe(out io.Writer) {
	view := f.state.View()
	if f.base != nil {
		fmt.Fprintf(out, "metadata of node %s at index %d of term %d; %d modules, %d entity types\n",
			f.base.Node, f.base.Metadata.Index, f.base.Metadata.Term, len(view.Modules()), len(view.Activations()))
	} else {
		fmt.Fprintln(out, "no node has readable metadata: modules, activations and settings are lost and must be created again")
	}
	for _, m := range view.Members() {
		fmt.Fprintf(out, "member %s: %s\n", m.Node, m.Status)
	}
	fmt.Fprintf(out, "the metadata shard restarts on this node as replica %d, with %d placed shards\n", f.bootstrap.Replica, len(view.Placements())-1)
	fmt.Fprintln(out, "before you start any node: run 'hostd recover --rejoin-metadata' on every other node that keeps its data")
}

// RejoinMetadata makes a stopped node discard its replica of the metadata shard
// because the metadata was rebuilt on another node. The node's other replicas
// stay. When the node starts again, it joins through its seeds and gets a
// new replica. It prints to out what it did, and can be repeated.
func RejoinMetadata(dir string, out io.Writer) error {
	lock, id, err := lockMember(dir, "start it with its seeds")
	if err != nil {
		return err
	}
	defer lock.Close()
	var was sharding.ReplicaID
	if err := withLog(dir, func(rec *recovery.Recovered, log *wal.Log) (err error) {
		was, err = offline.RemoveReplica(rec, log, sharding.MetaShard)
		return err
	}); err != nil {
		return err
	}
	// Write the identity last: while it names a replica that was removed, the
	// node does not start.
	id.Rejoin, id.MetaReplica, id.MetaVoters = id.Cluster, 0, nil
	if err := id.Write(dir); err != nil {
		return err
	}
	if was != 0 {
		fmt.Fprintf(out, "removed replica %d of the metadata shard\n", was)
	}
	fmt.Fprintf(out, "node %s keeps its other replicas; start it with its seeds when the node with the rebuilt metadata is running\n", id.Node)
	return nil
}

// withLog opens the log of a stopped node for writing.
func withLog(dir string, do func(*recovery.Recovered, *wal.Log) error) error {
	log, err := wal.Open(disk.OS{}, filepath.Join(dir, datadir.WALDir), wal.Options{})
	if err != nil {
		return err
	}
	rec, err := recovery.Recover(log)
	if err == nil {
		err = do(rec, log)
	}
	return errors.Join(err, log.Close())
}
