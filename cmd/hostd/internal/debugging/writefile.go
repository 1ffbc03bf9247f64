package debugging

import (
	"fmt"
	"os"
	"path/filepath"
)

// writeProfile writes a file that appears when it is whole.
func writeProfile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".profile-*")
	if err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	_, err = f.Write(content)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write the profile: %w", err)
	}
	return nil
}
