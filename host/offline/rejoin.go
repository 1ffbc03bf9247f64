package offline

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/sharding"
)

// Rejoin turns the data directory of a stopped node of a cluster into the
// directory of a node that lost its disk. It moves the journal and the
// identity into a subdirectory and writes a new identity with the node's
// name and a new disk id. When the node starts again, it joins through its
// seeds, its old replicas are declared lost, and it gets new replicas from
// its peers. Rejoin prints to out what it did. If it is interrupted, the
// node does not start, and calling Rejoin again continues.
//
// Nothing is deleted, so the operator can move the old data back until he
// deletes it. Data that only this node had is lost to the cluster; if two of
// three voters are intact, there is no such data.
func Rejoin(dir string, now time.Time, out io.Writer) error {
	return rejoin(dir, now, false, out)
}

// Renew is Rejoin for a node that sets damaged data aside by itself. It records
// the time in the new identity. It also continues an interrupted Rejoin, and
// vice versa.
func Renew(dir string, now time.Time, out io.Writer) error {
	return rejoin(dir, now, true, out)
}

func rejoin(dir string, now time.Time, byItself bool, out io.Writer) error {
	lock, err := datadir.Lock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	moving, err := datadir.InterruptedMove(dir)
	if err != nil {
		return err
	}
	old, err := datadir.ReadIdentity(dir)
	if moving != "" && errors.Is(err, fs.ErrNotExist) {
		old, err = datadir.ReadIdentity(filepath.Join(dir, moving))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is missing: a node that lost its data joins by itself when it is started with its seeds", datadir.IdentityFile)
	case err != nil:
		return err
	case moving != "" && old.Rejoin != "" && !old.Member(): // only the last step is missing
		return finishRejoin(dir, moving, &old, out)
	case !old.Member():
		return errors.New("the node has not joined a cluster yet: start it with its seeds")
	}
	if moving == "" {
		moving = datadir.AsidePrefix + now.UTC().Format("20060102T150405Z") + datadir.MovingSuffix
		if err := os.Mkdir(filepath.Join(dir, moving), 0o700); err != nil {
			return err
		}
	}
	if err := moveAside(dir, moving, out); err != nil {
		return err
	}
	fresh := datadir.Identity{Format: sharding.Version1, Node: old.Node, Disk: datadir.RandomID(), Incarnation: old.Incarnation, Rejoin: old.Cluster, Known: old.Known, Renewed: old.Renewed}
	if byItself {
		fresh.Renewed = now.UnixMilli()
	}
	if err := fresh.Write(dir); err != nil {
		return err
	}
	return finishRejoin(dir, moving, &fresh, out)
}

// finishRejoin renames the directory with the damaged data, which is the last step.
func finishRejoin(dir, moving string, fresh *datadir.Identity, out io.Writer) error {
	aside := strings.TrimSuffix(moving, datadir.MovingSuffix)
	if err := os.Rename(filepath.Join(dir, moving), filepath.Join(dir, aside)); err != nil {
		return err
	}
	if err := (disk.OS{}).SyncDir(dir); err != nil {
		return err
	}
	fmt.Fprintf(out, "the damaged data is in %s\n", aside)
	fmt.Fprintf(out, "node %s of cluster %s has a new disk id; start it with its seeds, and without bootstrap\n", fresh.Node, fresh.Rejoin)
	return nil
}

// moveAside moves everything that the node's votes and acknowledgements depend
// on, unless that was moved before. The node does not start while the directory
// has its suffix, so a crash in between never leaves a node that has forgotten
// a part. Modules and compiled code stay, because they are checked by their
// digests. The audit log stays too, because it records who called this node.
func moveAside(dir, aside string, out io.Writer) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	move := func(name string) error {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, aside, name)); err != nil {
			return err
		}
		fmt.Fprintf(out, "moved %s\n", name)
		return errors.Join(disk.OS{}.SyncDir(dir), disk.OS{}.SyncDir(filepath.Join(dir, aside)))
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == datadir.LockFile, name == datadir.ModulesDir, name == datadir.CacheDir, name == datadir.CacheKeyFile, name == datadir.AuditDir, strings.HasPrefix(name, datadir.AsidePrefix):
		default:
			if err := move(name); err != nil {
				return err
			}
		}
	}
	return nil
}
