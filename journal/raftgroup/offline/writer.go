package offline

import (
	"cmp"
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/raftlog"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// Log is the write-ahead log of a stopped node; *wal.Log satisfies it.
type Log interface {
	Append(kind byte, payload ...[]byte) (wal.Position, error)
	Sync() (wal.Position, error)
	SetCheckpoint(fn func(dst []byte) []byte)
	SyncMark() error
}

// writer appends records and tracks their effect on the groups, because a
// record that opens a new segment comes after a checkpoint of the state before
// it.
type writer struct {
	rec *recovery.Recovered
	log Log
}

func open(rec *recovery.Recovered, log Log) *writer {
	w := &writer{rec, log}
	log.SetCheckpoint(w.checkpoint)
	return w
}

func (w *writer) checkpoint(dst []byte) []byte {
	dst = wire.BeginCheckpoint(dst, w.rec.Watermark, len(w.rec.Groups))
	for i := range w.rec.Groups {
		dst = wire.AppendImage(dst, &w.rec.Groups[i].Image)
	}
	return wire.EndCheckpoint(dst, w.rec.Former)
}

func (w *writer) sync() error {
	if _, err := w.log.Sync(); err != nil {
		return err
	}
	return w.log.SyncMark()
}

// remove removes a replica.
func (w *writer) remove(r *recovery.Replica) error {
	payload := wire.AppendReplica(wire.BeginList(nil, 1), r.Shard, r.Replica)
	if _, err := w.log.Append(wire.KindRemove, payload); err != nil {
		return err
	}
	shard := r.Shard
	w.rec.Former[shard] = wire.FormerReplica{Replica: r.Replica, Generation: r.Image.Generation}
	w.rec.Groups = slices.DeleteFunc(w.rec.Groups, func(g recovery.Replica) bool { return g.Shard == shard })
	return nil
}

// create creates a replica that is the only voter.
func (w *writer) create(shard sharding.ShardID, replica sharding.ReplicaID) (*recovery.Replica, error) {
	conf := wire.NewMembership([]sharding.ReplicaID{replica}, nil)
	payload := wire.AppendMembership(wire.AppendReplica(wire.BeginList(nil, 1), shard, replica), conf)
	if _, err := w.log.Append(wire.KindCreate, payload); err != nil {
		return nil, err
	}
	image := wire.GroupImage{Shard: uint32(shard), Replica: uint64(replica), Conf: conf}
	if former, ok := w.rec.Former[shard]; ok {
		image.Generation = former.Generation + 1
	}
	at, _ := slices.BinarySearchFunc(w.rec.Groups, shard, func(g recovery.Replica, s sharding.ShardID) int { return cmp.Compare(g.Shard, s) })
	w.rec.Groups = slices.Insert(w.rec.Groups, at, recovery.Replica{Shard: shard, Replica: replica, Image: image, Log: raftlog.New(0, 0)})
	return &w.rec.Groups[at], nil
}

// install sets a replica to the image.
func (w *writer) install(r *recovery.Replica, image wire.GroupImage) error {
	if _, err := w.log.Append(wire.KindInstall, wire.AppendInstall(nil, &image)); err != nil {
		return err
	}
	r.Image = image
	return nil
}
