package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
)

// ErrBeyondRecovery means that the remaining data is inconsistent. Only a
// backup, or the other replicas of a cluster, can restore it.
var ErrBeyondRecovery = errors.New("the remaining data is inconsistent; restore the directory from a backup")

// errHasPeers rejects a node with peers. It must not continue with a part of
// its log, because it could vote against votes that it has forgotten. Its peers
// have the data, so Rejoin gives the node a new disk id.
var errHasPeers = errors.New("this node has had peers: with a truncated log, its votes could lose acknowledged writes; use 'hostd recover --rejoin' to rebuild it from its peers")

// AcceptLoss makes the data directory of a stopped node usable again after
// damage to its write-ahead log. It truncates the log at the first damage and
// rolls the store back to the version of the remaining log. Commands that were
// acknowledged after that point are lost. It prints to out what it did. It does
// not change a log without damage. The original files are kept, with names that
// end in .lost.
func AcceptLoss(ctx context.Context, dir string, out io.Writer) error {
	lock, err := datadir.Lock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	id, err := datadir.ReadIdentity(dir)
	if err != nil {
		return err
	}
	if id.Several {
		return errHasPeers
	}
	logs := filepath.Join(dir, datadir.WALDir)
	loss, err := wal.AcceptLoss(disk.OS{}, logs)
	if err != nil {
		return err
	}
	if loss == nil {
		fmt.Fprintln(out, "the write-ahead log is complete: nothing was changed")
	} else {
		fmt.Fprintf(out, "truncated the write-ahead log at %s: %v\n", loss.Kept, loss.Damage)
		for _, f := range loss.SetAside {
			fmt.Fprintf(out, "kept %s\n", filepath.Join(datadir.WALDir, f))
		}
	}
	report, recovered, err := verifyLog(logs)
	if err != nil {
		return err
	}
	if recovered.err != nil || report.IsDamaged() {
		return errors.Join(ErrBeyondRecovery, recovered.err)
	}
	return rollBackStore(ctx, filepath.Join(dir, datadir.StoreDir), recovered.rec.Watermark, out)
}

// rollBackStore rolls the store back to a version and verifies it there.
func rollBackStore(ctx context.Context, dir string, watermark uint64, out io.Writer) error {
	st, err := store.Open(dir, store.Options{Watermark: watermark})
	if err != nil {
		return err
	}
	at, err := st.RollBack(watermark)
	if err != nil {
		return errors.Join(err, st.Close())
	}
	report, err := st.Verify(ctx, at)
	if err := errors.Join(err, st.Close()); err != nil {
		return err
	}
	if err := report.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrBeyondRecovery, err)
	}
	fmt.Fprintf(out, "the store is at version %d: %d entities, %d events; the log has the later ones\n", watermark, report.Entities, report.Events)
	return nil
}
