package datadir

import (
	"errors"
	"os"
	"strings"
)

// Files and subdirectories of a data directory.
const (
	IdentityFile = "node.json"
	LockFile     = "lock"
	WALDir       = "wal"
	StoreDir     = "store"
	SnapshotDir  = "snapshots"
	ModulesDir   = "modules"
	CacheDir     = "cache"
	CacheKeyFile = "cache.key" // key of the HMACs of the files in CacheDir
	AuditDir     = "audit"
)

// Names of the directories into which a rejoin moves damaged data. Until the
// move is complete, the name has the suffix.
const (
	AsidePrefix  = "damaged-"
	MovingSuffix = ".moving"
)

var (
	// ErrRejoining rejects a directory whose data is only partly moved
	// aside. The rest is moved when the node is started.
	ErrRejoining = errors.New("moving the data aside was interrupted: start the node, or run 'hostd recover --rejoin' again")
	// ErrRebuilding means that the node cannot start, because a rebuild of
	// its metadata has begun and is not complete.
	ErrRebuilding = errors.New("the rebuild of the metadata was interrupted on this node: repeat 'hostd recover --rebuild-metadata' with the same files")
)

// InterruptedMove returns the name of the directory into which data is being moved,
// or "" if there is none.
func InterruptedMove(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), AsidePrefix) && strings.HasSuffix(e.Name(), MovingSuffix) {
			return e.Name(), nil
		}
	}
	return "", nil
}
