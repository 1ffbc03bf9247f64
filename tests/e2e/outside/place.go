// Package outside has the programs of the guide to what goes on outside of
// entities: one that acts for them, and one that keeps a view of them.
package outside

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// load reads what store wrote; where nothing is stored into stays as it is.
func load(file string, into any) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// store puts a value in the place of the one before, whole and on the disk, or
// not at all.
func store(file string, value any) (err error) {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	fresh, err := os.CreateTemp(filepath.Dir(file), "fresh-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(fresh.Name())
		}
	}()
	_, err = fresh.Write(text)
	if err = errors.Join(err, fresh.Sync(), fresh.Close()); err != nil {
		return err
	}
	return os.Rename(fresh.Name(), file)
}
