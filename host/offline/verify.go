package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Verify checks everything that a stopped node has on disk: the write-ahead log
// and its entries, the store as of the log's durable version, and the modules.
// It prints its findings to out, returns the number of faults, and changes
// nothing. An error means that something could not be checked.
func Verify(ctx context.Context, dir string, out io.Writer) (faults int, err error) {
	lock, err := datadir.Lock(dir)
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	if _, err := datadir.ReadIdentity(dir); err != nil {
		fmt.Fprintf(out, "FAULT %v\n", err)
		faults++
	}
	report, recovered, err := verifyLog(filepath.Join(dir, datadir.WALDir))
	if err != nil {
		return faults, err
	}
	for _, f := range report.Findings {
		word := "note "
		if f.Damage {
			word = "FAULT"
			faults++
		}
		fmt.Fprintf(out, "%s %s/%s at byte %d: %s\n", word, datadir.WALDir, f.File, f.Offset, f.Text)
	}
	version := store.Latest
	switch {
	case recovered.err != nil && !report.IsDamaged():
		fmt.Fprintf(out, "FAULT %s: %v\n", datadir.WALDir, recovered.err)
		faults++
	case recovered.err == nil:
		version = recovered.rec.Watermark
	}
	fmt.Fprintf(out, "%s: %d records, %d bytes; %d groups with %d entries after the store's version, which a start applies again\n",
		datadir.WALDir, report.Records, report.Bytes, recovered.groups(), recovered.entries())
	unread := verifyEntries(recovered, out)
	faults += unread
	bad, err := verifyStore(ctx, dir, version, recovered, out)
	if err != nil {
		return faults, err
	}
	faults += bad
	var view *meta.View
	if unread+bad == 0 {
		if view, err = verifiedMetadata(dir, recovered); err != nil {
			return faults, fmt.Errorf("read the metadata: %w", err)
		}
	}
	if faults == 0 && hasStore(dir) && recovered.rec != nil {
		if err := noteTakeovers(ctx, dir, recovered, view, out); err != nil {
			return faults, err
		}
	}
	bad, err = verifyModules(dir, view, out)
	return faults + bad, err
}

func hasStore(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, datadir.StoreDir))
	return err == nil
}

// verifiedMetadata returns the node's metadata, or nil if it has none.
func verifiedMetadata(dir string, log recoveredLog) (*meta.View, error) {
	if log.err != nil || log.rec == nil || !hasStore(dir) {
		return nil, nil
	}
	state, _, err := metadataState(dir, log.rec)
	if err != nil || state == nil {
		return nil, err
	}
	return state.View(), nil
}

// recoveredLog is the result of recovering the raft groups from a log.
type recoveredLog struct {
	rec *recovery.Recovered
	err error
}

func (r recoveredLog) groups() int {
	if r.rec == nil {
		return 0
	}
	return len(r.rec.Groups)
}

// entries counts the entries after the truncation points.
func (r recoveredLog) entries() (n uint64) {
	if r.rec == nil {
		return 0
	}
	for _, g := range r.rec.Groups {
		n += g.LastIndex - g.TruncatedIndex
	}
	return n
}

// generations returns the shards' generations according to the log.
func (r recoveredLog) generations(snapshots string) []statefile.Generation {
	if r.rec == nil {
		return nil
	}
	return r.rec.Generations(disk.OS{}, snapshots)
}

// cuts returns the index after which the log of each shard starts.
func (r recoveredLog) cuts() map[sharding.ShardID]uint64 {
	out := map[sharding.ShardID]uint64{}
	if r.rec != nil {
		for _, g := range r.rec.Groups {
			out[g.Shard] = g.TruncatedIndex
		}
	}
	return out
}

// replayOnly is a log that can only be replayed.
type replayOnly struct {
	replay func(func(wal.Position, byte, []byte) error) error
}

func (l replayOnly) Replay(fn func(wal.Position, byte, []byte) error) error { return l.replay(fn) }

func verifyLog(dir string) (report wal.Report, r recoveredLog, err error) {
	r.rec, r.err = recovery.Recover(replayOnly{replay: func(fn func(wal.Position, byte, []byte) error) error {
		var first error
		report, err = wal.VerifyEach(disk.OS{}, dir, func(pos wal.Position, kind byte, payload []byte) error {
			if first == nil {
				first = fn(pos, kind, payload)
			}
			return nil
		})
		return errors.Join(err, first)
	}})
	return report, r, err
}

func verifyStore(ctx context.Context, dir string, version uint64, log recoveredLog, out io.Writer) (int, error) {
	r, err := checkStore(ctx, dir, version, log)
	if err != nil || r == nil {
		return 0, err
	}
	for i := range r.Problems {
		fmt.Fprintf(out, "FAULT %s: %v\n", datadir.StoreDir, &r.Problems[i])
	}
	if r.More > 0 {
		fmt.Fprintf(out, "FAULT %s: %d more\n", datadir.StoreDir, r.More)
	}
	fmt.Fprintf(out, "%s: %d entities, %d records, %d events, %d bytes in the store (version %d)\n", datadir.StoreDir, r.Entities, r.Records, r.Events, r.Bytes, r.Version)
	return len(r.Problems) + r.More, nil
}

// checkStore verifies a store against its log. It returns nil if there is no
// store.
func checkStore(ctx context.Context, dir string, version uint64, log recoveredLog) (*store.Report, error) {
	dir, generations, cuts := filepath.Join(dir, datadir.StoreDir), log.generations(filepath.Join(dir, datadir.SnapshotDir)), log.cuts()
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r, err := store.VerifyDir(ctx, dir, version, store.Options{Leftover: eventlog.Leftovers(generations)})
	if err != nil {
		return nil, err
	}
	r.Problems = append(r.Problems, eventlog.VerifyGenerations(r, generations, cuts)...)
	return r, nil
}
