package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// Verify checks everything that a stopped node has on disk: the write-ahead
// log, the store as of the log's watermark, and the modules. It prints what it
// finds to out and returns the number of faults; it changes nothing. The error
// is of what could not be looked at.
func Verify(ctx context.Context, dir string, out io.Writer) (faults int, err error) {
	lock, err := lockDir(dir)
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	if _, err := readIdentity(filepath.Join(dir, identityFile)); err != nil {
		fmt.Fprintf(out, "FAULT %v\n", err)
		faults++
	}
	report, recovered, err := verifyLog(filepath.Join(dir, walDir))
	if err != nil {
		return faults, err
	}
	for _, f := range report.Findings {
		word := "note "
		if f.Damage {
			word = "FAULT"
			faults++
		}
		fmt.Fprintf(out, "%s %s/%s at byte %d: %s\n", word, walDir, f.File, f.Offset, f.Text)
	}
	version := store.Latest
	switch {
	case recovered.err != nil && !report.Damaged():
		fmt.Fprintf(out, "FAULT %s: %v\n", walDir, recovered.err)
		faults++
	case recovered.err == nil:
		version = recovered.rec.Watermark
	}
	fmt.Fprintf(out, "%s: %d records, %d bytes; %d groups with %d entries behind the last cut, which a start applies again\n",
		walDir, report.Records, report.Bytes, recovered.groups(), recovered.entries())
	bad, err := verifyStore(ctx, dir, version, recovered, out)
	if err != nil {
		return faults, err
	}
	faults += bad
	bad, err = verifyModules(dir, recovered, bad == 0, out)
	return faults + bad, err
}

// recovery is what the raft groups make of a log.
type recovery struct {
	rec *raftgroup.Recovered
	err error
}

func (r recovery) groups() int {
	if r.rec == nil {
		return 0
	}
	return len(r.rec.Groups)
}

// entries counts what lies behind the last cut.
func (r recovery) entries() (n uint64) {
	if r.rec == nil {
		return 0
	}
	for _, g := range r.rec.Groups {
		n += g.LastIndex - g.CutIndex
	}
	return n
}

// lives are the shards' lives as the log has them.
func (r recovery) lives(snapshots string) []statefile.Life {
	if r.rec == nil {
		return nil
	}
	return r.rec.Lives(disk.OS{}, snapshots)
}

// cuts are the indexes behind which the log of each shard begins.
func (r recovery) cuts() map[sharding.ShardID]uint64 {
	out := map[sharding.ShardID]uint64{}
	if r.rec != nil {
		for _, g := range r.rec.Groups {
			out[g.Shard] = g.CutIndex
		}
	}
	return out
}

// replayOnly is a log that is only read.
type replayOnly struct {
	raftgroup.Log
	replay func(func(wal.Position, byte, []byte) error) error
}

func (l replayOnly) Replay(fn func(wal.Position, byte, []byte) error) error { return l.replay(fn) }

func verifyLog(dir string) (report wal.Report, r recovery, err error) {
	r.rec, r.err = raftgroup.Recover(replayOnly{replay: func(fn func(wal.Position, byte, []byte) error) error {
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

func verifyStore(ctx context.Context, dir string, version uint64, log recovery, out io.Writer) (int, error) {
	r, err := checkStore(ctx, dir, version, log)
	if err != nil || r == nil {
		return 0, err
	}
	for i := range r.Problems {
		fmt.Fprintf(out, "FAULT %s: %v\n", storeDir, &r.Problems[i])
	}
	if r.More > 0 {
		fmt.Fprintf(out, "FAULT %s: %d more\n", storeDir, r.More)
	}
	fmt.Fprintf(out, "%s: %d entities, %d records, %d events, %d bytes as of the last cut (version %d)\n", storeDir, r.Entities, r.Records, r.Events, r.Bytes, r.Version)
	return len(r.Problems) + r.More, nil
}

// checkStore verifies a store against its log; nil when there is none.
func checkStore(ctx context.Context, dir string, version uint64, log recovery) (*store.Report, error) {
	dir, lives, cuts := filepath.Join(dir, storeDir), log.lives(filepath.Join(dir, snapshotDir)), log.cuts()
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r, err := store.VerifyDir(ctx, dir, version, store.Options{Leftover: eventlog.Leftovers(lives)})
	if err != nil {
		return nil, err
	}
	r.Problems = append(r.Problems, eventlog.VerifyLives(r, lives, cuts)...)
	return r, nil
}
