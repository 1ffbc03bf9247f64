// Package outside contains the programs of the guide on effects outside of
// entities: a program that performs them, and a program that maintains a view.
package outside

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// load reads a value that store wrote. If the file does not exist, into is
// unchanged.
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

// store replaces the value in a file atomically, and syncs it to disk.
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
