package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// file is the newest file of a log, open for appending.
type file struct {
	f    *os.File
	size int64
	prev string // hash of the last line, in hex
	torn bool   // the last line was incomplete; its newline has been added
}

// rotatedName returns the name of the nth rotated file of a log, from 1 for the
// newest.
func rotatedName(path string, n int) string { return fmt.Sprintf("%s.%d", path, n) }

// hashOf returns the SHA-256 of a line without its newline, in hex.
func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// openFile opens the newest file, and creates it if it does not exist. If a
// crash or a full disk has left an incomplete last line, openFile adds the
// newline.
func openFile(path string) (*file, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	o := &file{f: f}
	if err := o.resume(path); err != nil {
		f.Close()
		return nil, err
	}
	return o, nil
}

// resume finds the end of the hash chain.
func (o *file) resume(path string) error {
	last, ended, size, err := lastLine(o.f)
	if err != nil {
		return err
	}
	o.size = size
	if size == 0 {
		return o.resumeRotated(path)
	}
	if !ended {
		n, err := o.f.Write([]byte{'\n'})
		o.size += int64(n)
		if err != nil {
			return err
		}
		o.torn = true
	}
	o.prev = hashOf(last)
	return nil
}

// resumeRotated continues the chain of the previous file, if that file
// exists.
func (o *file) resumeRotated(path string) error {
	f, err := os.Open(rotatedName(path, 1))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	last, _, size, err := lastLine(f)
	if err == nil && size > 0 {
		o.prev = hashOf(last)
	}
	return err
}

// lastLine returns the last line of a file without its newline, whether it has
// a newline, and the size of the file. If the line is longer than maxLine
// bytes, which the log never writes, it returns only the end of the line.
func lastLine(f *os.File) (text []byte, ended bool, size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, false, 0, err
	}
	size = info.Size()
	buf := make([]byte, min(size, maxLine+1))
	if _, err := f.ReadAt(buf, size-int64(len(buf))); err != nil && !errors.Is(err, io.EOF) {
		return nil, false, 0, err
	}
	buf, ended = bytes.CutSuffix(buf, []byte{'\n'})
	return buf[bytes.LastIndexByte(buf, '\n')+1:], ended, size, nil
}

// rotate renames each file of a log to the next number, so that path is free.
// At most keep rotated files remain.
func rotate(path string, keep int) error {
	for n := keep; n > 0; n-- {
		from := path
		if n > 1 {
			from = rotatedName(path, n-1)
		}
		if err := os.Rename(from, rotatedName(path, n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
