package guest

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hostd/hostd/host/files"
)

// SealsName is the file in the cache directory that lists the seal of each
// compiled file. The runtime's own checksum is not enough: it does not cover
// the addresses at which functions begin, and anybody could compute it for a
// forged file, whose code would then be run.
const SealsName = "seals"

// seal is the HMAC-SHA256 of a file's name and content with the key of the
// cache.
type seal [sha256.Size]byte

// seal computes the seal of a file from its relative name and its content.
func (c *compileCache) seal(name string) (out seal, err error) {
	relative, err := c.relative(name)
	if err != nil {
		return out, err
	}
	f, err := os.Open(name)
	if err != nil {
		return out, err
	}
	defer f.Close()
	sum := hmac.New(sha256.New, c.key)
	io.WriteString(sum, relative+"\x00")
	if _, err := io.Copy(sum, f); err != nil {
		return out, err
	}
	return seal(sum.Sum(nil)), nil
}

// relative returns the name of a file relative to the cache directory, as the
// seal covers it.
func (c *compileCache) relative(name string) (string, error) {
	relative, err := filepath.Rel(c.dir, name)
	return filepath.ToSlash(relative), err
}

// line returns the entry of a file in the list of seals.
func (c *compileCache) line(name string, sum seal) (string, error) {
	relative, err := c.relative(name)
	return fmt.Sprintf("%x %s", sum, relative), err
}

// Verify removes every file that has no valid seal. It returns how many of
// the removed files are listed; these files are damaged. It must run before
// the runtime reads any file.
func (c *compileCache) Verify() (damaged int, err error) {
	text, err := os.ReadFile(filepath.Join(c.dir, SealsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("compilation cache: %w", err)
	}
	listed := strings.Split(string(text), "\n")
	names, err := filepath.Glob(filepath.Join(c.dir, "wazero-*", "*"))
	if err != nil {
		return 0, fmt.Errorf("compilation cache: %w", err)
	}
	for _, name := range names {
		sum, err := c.seal(name)
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
		if slices.ContainsFunc(listed, func(other string) bool { return strings.HasSuffix(other, line[2*sha256.Size:]) }) {
			damaged++
		}
		if err := os.Remove(name); err != nil {
			return damaged, fmt.Errorf("compilation cache: %w", err)
		}
	}
	return damaged, nil
}

// Record seals new files and drops the entries of deleted ones. A file that
// is not recorded is compiled again after the node has restarted.
func (c *compileCache) Record() error {
	names, err := filepath.Glob(filepath.Join(c.dir, "wazero-*", "*"))
	if err != nil {
		return err
	}
	changed := len(names) != len(c.sums)
	sums := make(map[string]seal, len(names))
	var text strings.Builder
	for _, name := range names {
		sum, known := c.sums[name]
		if !known {
			changed = true
			if sum, err = c.seal(name); err != nil {
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
	if err := files.Replace(filepath.Join(c.dir, SealsName), []byte(text.String()), 0o600); err != nil {
		return err
	}
	c.sums = sums
	return nil
}
