package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes the file at the path with the mode, or replaces it. The new
// content is synced first. Windows does not promise that a rename is atomic
// across a power cut, so a reader may find no file after one.
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
