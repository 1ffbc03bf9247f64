package compile

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ChecksumsName is the file, in the directory of the compilation cache, with
// the checksum of each file there: the runtime's own leaves out where functions
// begin, and a wrong beginning would be run.
const ChecksumsName = "checksums"

// checksum of a whole file.
func checksum(name string) (uint32, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.Copy(sum, f); err != nil {
		return 0, err
	}
	return sum.Sum32(), nil
}

// line is a file's entry in the list of checksums.
func (c *Cache) line(name string, sum uint32) (string, error) {
	relative, err := filepath.Rel(c.dir, name)
	return fmt.Sprintf("%08x %s", sum, filepath.ToSlash(relative)), err
}

// Verify removes every file that is not as it was recorded, or never was, and
// returns how many of the first kind there were. It comes before the runtime
// reads any of them.
func (c *Cache) Verify() (damaged int, err error) {
	text, err := os.ReadFile(filepath.Join(c.dir, ChecksumsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("compilation cache: %w", err)
	}
	listed := strings.Split(string(text), "\n")
	names, err := filepath.Glob(filepath.Join(c.dir, "wazero-*", "*"))
	if err != nil {
		return 0, fmt.Errorf("compilation cache: %w", err)
	}
	for _, name := range names {
		sum, err := checksum(name)
		if err != nil {
			return damaged, fmt.Errorf("compilation cache: %w", err)
		}
		line, err := c.line(name, sum)
		if err != nil {
			return damaged, fmt.Errorf("compilation cache: %w", err)
		}
		if slices.Contains(listed, line) {
			c.sums[name] = sum
			continue
		}
		if slices.ContainsFunc(listed, func(other string) bool { return strings.HasSuffix(other, line[8:]) }) {
			damaged++
		}
		if err := os.Remove(name); err != nil {
			return damaged, fmt.Errorf("compilation cache: %w", err)
		}
	}
	return damaged, nil
}

// Record adds the files that have come since, and forgets those that have
// gone. Files that are not recorded are compiled again after the next start.
func (c *Cache) Record() error {
	names, err := filepath.Glob(filepath.Join(c.dir, "wazero-*", "*"))
	if err != nil {
		return err
	}
	changed := len(names) != len(c.sums)
	sums := make(map[string]uint32, len(names))
	var text strings.Builder
	for _, name := range names {
		sum, known := c.sums[name]
		if !known {
			changed = true
			if sum, err = checksum(name); err != nil {
				return err
			}
		}
		sums[name] = sum
		line, err := c.line(name, sum)
		if err != nil {
			return err
		}
		text.WriteString(line + "\n")
	}
	if !changed {
		return nil
	}
	path := filepath.Join(c.dir, ChecksumsName)
	if err := os.WriteFile(path+".tmp", []byte(text.String()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	c.sums = sums
	return nil
}
