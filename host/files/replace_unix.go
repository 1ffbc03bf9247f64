//go:build unix

package files

import (
	"io/fs"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Replace writes a file with the mode, in the place of the one that is at the
// path. It is synced first, so that who reads it, also after a crash, finds the
// old file or the new one as a whole.
func Replace(path string, content []byte, mode fs.FileMode) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(mode))
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}
