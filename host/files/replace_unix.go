//go:build unix

package files

import (
	"io/fs"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Replace writes a file with the given mode and replaces the file at path, if
// there is one. The content is synced first, so that readers find either the
// old or the new file, also after a crash.
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
