package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hostd/hostd/journal/disk"
)

// asidePrefix begins the names of directories that Rejoin moves damaged data
// into.
const asidePrefix = "damaged-"

// Rejoin makes the data directory of a stopped node of several that of a node
// that lost its disk: the journal and the identity move into a directory below
// it, and a new identity with the node's name and another disk id is written.
// At its next start the node joins through its seeds, its old replicas are
// given up, and it gets new ones from its peers. It prints what it did to out.
//
// Nothing is deleted: until the operator does that, the old data can be put
// back. What this node alone had is lost to the cluster; where two of three
// voters are whole, there is nothing such.
func Rejoin(dir string, now time.Time, out io.Writer) error {
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	old, err := readIdentity(filepath.Join(dir, identityFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is missing: a node that lost its data joins by itself when it is started with its seeds", identityFile)
	case err != nil:
		return err
	case !old.member():
		return errors.New("the node has not joined a cluster yet: start it with its seeds")
	}
	aside := asidePrefix + now.UTC().Format("20060102T150405Z")
	if err := os.Mkdir(filepath.Join(dir, aside), 0o700); err != nil {
		return err
	}
	if err := moveAside(dir, aside, out); err != nil {
		return err
	}
	fresh := identity{Format: dataFormat, Node: old.Node, Disk: randomID(), Incarnation: old.Incarnation, Rejoin: old.Cluster}
	if err := fresh.write(dir); err != nil {
		return err
	}
	fmt.Fprintf(out, "node %s of cluster %s has a new disk id; start it with its seeds, and without bootstrap\n", fresh.Node, old.Cluster)
	return nil
}

// moveAside moves all that the node promised by. The identity goes first: as
// long as there is a journal without one the node does not start, so that a
// crash on the way never leaves one that has forgotten a part. Modules and
// compilations stay, they are checked by their digests.
func moveAside(dir, aside string, out io.Writer) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	move := func(name string) error {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, aside, name)); err != nil {
			return err
		}
		fmt.Fprintf(out, "moved %s to %s\n", name, filepath.Join(aside, name))
		return errors.Join(disk.OS{}.SyncDir(dir), disk.OS{}.SyncDir(filepath.Join(dir, aside)))
	}
	if err := move(identityFile); err != nil {
		return err
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == identityFile, name == lockFile, name == modulesDir, name == cacheDir, strings.HasPrefix(name, asidePrefix):
		default:
			if err := move(name); err != nil {
				return err
			}
		}
	}
	return nil
}
