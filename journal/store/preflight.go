package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/hostd/hostd/journal/disk"
)

// Badger opens tables in its own goroutines. In these goroutines, a damaged
// table ends the process with a panic, or is skipped with a log line, and a
// missing manifest makes Badger delete every table. The files are therefore
// verified before Badger touches the directory, in a goroutine that recovers
// from panics.

// removeEmptyLogs deletes empty memtable logs, which a kill between two system
// calls leaves behind and which Badger refuses to open.
func removeEmptyLogs(dir string) (removed int, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		fi, err := os.Stat(name)
		if err != nil {
			return removed, err
		}
		if fi.Size() != 0 {
			continue
		}
		if err := os.Remove(name); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// fitMemtables returns the memtable size, at least bytes, with which a killed
// store can be opened. Badger replays each memtable log into one memtable and
// ends the process if the log does not fit. A new log file is twice as large as
// the memtable size that was configured when it was created. A log that was
// replayed before is as large as its content, which takes less than twice that
// space in memory.
func fitMemtables(dir string, bytes int64) (int64, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil {
		return 0, err
	}
	fits := bytes
	for _, name := range names {
		fi, err := os.Stat(name)
		if err != nil {
			return 0, err
		}
		need := bytes
		for need < maxMemTableBytes && fi.Size() != 2*need && 2*fi.Size() > need {
			need *= 2
		}
		fits = max(fits, need)
	}
	return fits, nil
}

// The store is not encrypted, so its files name key 0, and its key registry is
// empty.
const (
	keyIDBytes    = 8
	actionLog     = "keep a copy, then remove the file: the write-ahead log has its contents too"
	actionSpare   = "keep a copy, then remove the file: the store keeps no data in it"
	actionNewKeys = "keep a copy, then remove the file: the store is not encrypted and creates a new one"
)

// checkHeaders checks the headers of the files other than tables. Badger fails
// to open if one of these headers is damaged, although nothing in these files
// is needed.
func checkHeaders(dir string) error {
	for _, kind := range []struct{ pattern, action string }{{"*.mem", actionLog}, {"*.vlog", actionSpare}} {
		names, err := filepath.Glob(filepath.Join(dir, kind.pattern))
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := checkKeyID(name, kind.action); err != nil {
				return err
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, badger.KeyRegistryFileName)); err != nil {
		return nil // the store is new, or Badger creates a new registry
	}
	keys, err := badger.OpenKeyRegistry(badger.KeyRegistryOptions{Dir: dir, ReadOnly: true})
	if err != nil {
		return &DamageError{Where: badger.KeyRegistryFileName, What: firstLine(err), Action: actionNewKeys}
	}
	return keys.Close()
}

func checkKeyID(name, action string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	var id [keyIDBytes]byte
	if _, err := io.ReadFull(f, id[:]); err != nil {
		return nil // Badger handles a truncated file
	}
	if id != [keyIDBytes]byte{} {
		return &DamageError{Where: filepath.Base(name), What: "its header names an encryption key, but the store is not encrypted", Action: action}
	}
	return nil
}

// preflight verifies the manifest and the tables that it lists, and returns
// their highest version.
func preflight(fsys disk.FS, dir string) (maxVersion uint64, err error) {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, checkNoTables(dir)
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := checkHeaders(dir); err != nil {
		return 0, err
	}
	m, _, err := badger.ReplayManifestFile(f, 0, badger.DefaultOptions(dir))
	if err != nil {
		return 0, &DamageError{Where: badger.ManifestFilename, What: err.Error(), Action: actionRebuild}
	}
	ids := make([]uint64, 0, len(m.Tables))
	for id := range m.Tables {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	var r reading
	for _, id := range ids {
		v, err := checkTable(fsys, dir, id, m.Tables[id].Compression, &r)
		if err != nil {
			return 0, err
		}
		maxVersion = max(maxVersion, v)
	}
	return maxVersion, nil
}

func checkNoTables(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err == nil && len(names) > 0 {
		err = &DamageError{
			Where: badger.ManifestFilename, Action: actionRebuild,
			What: fmt.Sprintf("missing, although there are %d tables", len(names)),
		}
	}
	return err
}

// checkTable reads one table and verifies its index and every block and value.
func checkTable(fsys disk.FS, dir string, id uint64, compression options.CompressionType, r *reading) (maxVersion uint64, err error) {
	f, err := openTableFile(fsys, dir, id, compression, r)
	if err == nil {
		err = f.verify(nil)
	}
	if err != nil {
		return 0, err
	}
	return f.MaxVersion(), nil
}
