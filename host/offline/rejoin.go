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

// Rejoin makes the data directory of a stopped node of several that of a node
// that lost its disk: the journal and the identity move into a directory below
// it, and a new identity with the node's name and another disk id is written.
// At its next start the node joins through its seeds, its old replicas are
// given up, and it gets new ones from its peers. It prints what it did to out.
// When it was interrupted the node does not start, and Rejoin goes on from
// there.
//
// Nothing is deleted: until the operator does that, the old data can be put
// back. What this node alone had is lost to the cluster; where two of three
// voters are whole, there is nothing such.
func Rejoin(dir string, now time.Time, out io.Writer) error {
	return rejoin(dir, now, false, out)
}

// Renew is Rejoin for a node that puts damaged data aside by itself: the new
// identity says when. It goes on with what either was interrupted in.
func Renew(dir string, now time.Time, out io.Writer) error {
	return rejoin(dir, now, true, out)
}

func rejoin(dir string, now time.Time, byItself bool, out io.Writer) error {
	lock, err := datadir.Lock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	moving, err := datadir.Interrupted(dir)
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
	case moving != "" && old.Rejoin != "" && !old.Member(): // the last step is missing
		return rejoined(dir, moving, &old, out)
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
	return rejoined(dir, moving, &fresh, out)
}

// rejoined gives the directory of the damaged data its name: nothing is left to
// do.
func rejoined(dir, moving string, fresh *datadir.Identity, out io.Writer) error {
	aside := strings.TrimSuffix(moving, datadir.MovingSuffix)
	if err := os.Rename(filepath.Join(dir, moving), filepath.Join(dir, aside)); err != nil {
		return err
	}
	if err := (disk.OS{}).SyncDir(dir); err != nil {
		return err
	}
	fmt.Fprintf(out, "what was damaged is in %s\n", aside)
	fmt.Fprintf(out, "node %s of cluster %s has a new disk id; start it with its seeds, and without bootstrap\n", fresh.Node, fresh.Rejoin)
	return nil
}

// moveAside moves all that the node promised by, as far as that was not done
// before. As long as the directory has its suffix the node does not start, so
// that a crash on the way never leaves one that has forgotten a part. Modules
// and compilations stay, they are checked by their digests, and so does the
// audit log, which says who asked this node.
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
