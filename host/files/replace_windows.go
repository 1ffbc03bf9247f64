package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file with the given mode and replaces the file at path, if
// there is one. The content is synced first. Windows does not guarantee that a
// rename is atomic across a power failure, so after a power failure there
// may be no file.
func Replace(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
