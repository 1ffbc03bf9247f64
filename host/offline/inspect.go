package offline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// remainsVersion is the version of the files that Inspect writes.
const remainsVersion = 1

// remains is the content of the file that Inspect writes about one stopped
// node.
type remains struct {
	Version     int                     `json:"version"`
	Node        sharding.NodeID         `json:"nodeId"`
	Disk        string                  `json:"diskId"`
	Incarnation uint64                  `json:"incarnation"`
	Cluster     string                  `json:"clusterId"`
	Shards      uint32                  `json:"shards"`
	Level       sharding.ClusterVersion `json:"level,omitempty"`
	Replicas    []replicaRemains        `json:"replicas"`
	// Removed is the highest id of a replica that was removed from the node.
	Removed sharding.ReplicaID `json:"removed,omitempty"`
	// Revision is the highest activation revision under which a shard has run
	// on the node.
	Revision uint64 `json:"revision,omitempty"`
	// Metadata is the node's readable metadata; nil if there is none.
	Metadata *metadataRemains `json:"metadata,omitempty"`
}

// replicaRemains describes one replica according to the log of a stopped node.
type replicaRemains struct {
	Shard    sharding.ShardID     `json:"shard"`
	Replica  sharding.ReplicaID   `json:"replica"`
	Term     sharding.Term        `json:"term"`
	Index    uint64               `json:"index"`
	Voters   []sharding.ReplicaID `json:"voters"`
	Learners []sharding.ReplicaID `json:"learners,omitempty"`
	Outgoing []sharding.ReplicaID `json:"outgoing,omitempty"`
	First    []sharding.ReplicaID `json:"first,omitempty"`
}

// metadataRemains is the metadata as of the last entry in the log. The entry
// may be uncommitted, because no majority is left that could show whether it
// was committed.
type metadataRemains struct {
	Index uint64        `json:"index"`
	Term  sharding.Term `json:"term"`
	Pairs []pair        `json:"pairs"`
}

// pair is a key and a value as text.
type pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// lockMember locks the directory of a stopped node and reads its identity. It
// fails if the node is in no cluster or is being rebuilt. The caller closes the
// lock. otherwise is the advice for a node that has joined no cluster.
func lockMember(dir, otherwise string) (lock io.Closer, id datadir.Identity, err error) {
	held, err := datadir.Lock(dir)
	if err != nil {
		return nil, id, err
	}
	switch id, err = datadir.ReadIdentity(dir); {
	case err != nil:
	case id.Rebuilding:
		err = datadir.ErrRebuilding
	case id.Cluster == "":
		err = fmt.Errorf("the node has not joined a cluster: %s", otherwise)
	}
	if err != nil {
		held.Close()
		return nil, id, err
	}
	return held, id, nil
}

// Inspect writes, as JSON to file, the state of a stopped node's replicas and
// its metadata. RebuildMetadata needs such a file of every node. It prints a
// summary to out. It fails if the node's log, or data of a shard other than
// shard 0, is damaged, because then none of the node's replicas is reliable.
func Inspect(ctx context.Context, dir, file string, out io.Writer) error {
	lock, id, err := lockMember(dir, "it has no data to read")
	if err != nil {
		return err
	}
	defer lock.Close()
	rec, faults, err := soundData(ctx, dir)
	if err != nil {
		return err
	}
	r := remains{Version: remainsVersion, Node: id.Node, Disk: id.Disk, Incarnation: id.Incarnation, Cluster: id.Cluster, Shards: id.Shards, Level: id.Format, Removed: rec.HighestRemoved()}
	replicas, err := rec.Replicas()
	if err != nil {
		return err
	}
	for _, m := range replicas {
		r.Replicas = append(r.Replicas, replicaRemains(m))
	}
	if err := r.readStore(dir, rec); err != nil {
		return err
	}
	if r.Metadata, err = readMetadata(dir, rec); err != nil {
		faults = append(faults, err.Error())
	}
	for _, f := range faults {
		fmt.Fprintf(out, "shard 0 is damaged on this node: %s\n", f)
	}
	fmt.Fprintf(out, "node %s of cluster %s: %d replicas\n", r.Node, r.Cluster, len(r.Replicas))
	if m := r.Metadata; m != nil {
		fmt.Fprintf(out, "metadata: %d keys at index %d of term %d\n", len(m.Pairs), m.Index, m.Term)
	} else {
		fmt.Fprintln(out, "metadata: not readable")
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return disk.WriteFileAtomic(disk.OS{}, file, append(data, '\n'))
}

// errDamagedNode means that none of the node's replicas is reliable.
var errDamagedNode = errors.New("the node's data is damaged: leave out this node, and rebuild it with 'hostd recover --rejoin' when the cluster is running again")

// soundData recovers the log and verifies all shards. It returns the faults of
// shard 0 as text, and an error if any other shard has a fault.
func soundData(ctx context.Context, dir string) (*recovery.Recovered, []string, error) {
	report, log, err := verifyLog(filepath.Join(dir, datadir.WALDir))
	if err != nil {
		return nil, nil, err
	}
	if report.IsDamaged() || log.err != nil {
		return nil, nil, errors.Join(errDamagedNode, log.err)
	}
	checked, err := checkStore(ctx, dir, log.rec.Watermark, log)
	if err != nil || checked == nil {
		return log.rec, nil, err
	}
	var faults []string
	for i := range checked.Problems {
		p := &checked.Problems[i]
		if checked.More > 0 || p.Where != "shard 0" && !strings.HasSuffix(p.Where, " of shard 0") {
			return nil, nil, fmt.Errorf("%w: %w", errDamagedNode, p)
		}
		faults = append(faults, p.Error())
	}
	return log.rec, faults, nil
}

// readMetadata reads the metadata of a stopped node. It returns nil without an
// error if the node has no replica of the metadata shard.
func readMetadata(dir string, rec *recovery.Recovered) (*metadataRemains, error) {
	state, at, err := metadataState(dir, rec)
	if state == nil || err != nil {
		return nil, err
	}
	m := &metadataRemains{Index: at.Index, Term: at.Term}
	for _, kv := range state.Dump() {
		m.Pairs = append(m.Pairs, pair{string(kv.Key), string(kv.Value)})
	}
	return m, nil
}

// metadataState reads the metadata from the store or from the snapshot that
// must be installed, and applies the later entries of the log. It returns nil
// without an error if there is none.
func metadataState(dir string, rec *recovery.Recovered) (state *meta.State, at store.Applied, err error) {
	generation, ok := metaGeneration(rec, filepath.Join(dir, datadir.SnapshotDir))
	if !ok {
		return nil, at, nil
	}
	st, err := openToRead(filepath.Join(dir, datadir.StoreDir), rec.Watermark)
	if err != nil {
		return nil, at, err
	}
	pairs, at, err := storedMetadata(st, rec.Watermark, generation)
	if err := errors.Join(err, st.Close()); err != nil {
		return nil, at, err
	}
	state = meta.New()
	if err := state.Load(at.Index, pairs); err != nil {
		return nil, at, err
	}
	stored := at.Index
	for _, e := range rec.Entries(sharding.MetaShard) {
		if e.Index <= stored {
			continue
		}
		if err := applyMetadata(state, e); err != nil {
			return nil, at, err
		}
		at.Index, at.Term = e.Index, e.Term
	}
	if _, created := state.View().Cluster(); !created {
		return nil, at, nil
	}
	return state, at, nil
}

// openToRead opens a stopped node's store without writing to it, unless a crash
// left it in a state that must be repaired first, as the node would do when
// it starts.
func openToRead(dir string, watermark uint64) (*store.Store, error) {
	st, err := store.Open(dir, store.Options{Watermark: watermark, ReadOnly: true})
	var damage *store.DamageError
	if err == nil || errors.As(err, &damage) {
		return st, err
	}
	return store.Open(dir, store.Options{Watermark: watermark})
}

// nodeRemains converts the file into input of coordinator.Rebuild. The member
// is as in the metadata, if that is readable, but with the disk and incarnation
// of the inspected node.
func (r *remains) nodeRemains(view *meta.View) coordinator.NodeRemains {
	m, known := view.Member(r.Node)
	if !known {
		m = meta.Member{Node: r.Node, Address: "unknown", Status: meta.StatusUp} // until the node reports its address itself
	}
	m.Disk, m.Incarnation = r.Disk, r.Incarnation
	out := coordinator.NodeRemains{Cluster: r.Cluster, Shards: r.Shards, ClusterVersion: r.Level, Member: m, MaxRemovedReplica: r.Removed, Revision: r.Revision}
	for _, c := range r.Replicas {
		out.Replicas = append(out.Replicas, coordinator.ReplicaRemains{
			Shard: c.Shard, Replica: c.Replica, Term: c.Term, Applied: c.Index,
			Voters: c.Voters, Learners: c.Learners, Outgoing: c.Outgoing, First: c.First,
		})
	}
	return out
}
