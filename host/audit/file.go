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
	prev string // hash of the last line
	torn bool   // the last line had no end; it has one now
}

// Rotated is the name of the nth newest file before that of a log.
func Rotated(path string, n int) string { return fmt.Sprintf("%s.%d", path, n) }

// hashOf names a line by its bytes without the newline.
func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// openFile opens the newest file, and makes it where it is missing. A line
// without its end, which a crash or a full disk leaves, is ended.
func openFile(path string) (*file, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
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

// resume finds where the chain goes on.
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

// resumeRotated goes on from the file before, where there is one.
func (o *file) resumeRotated(path string) error {
	f, err := os.Open(Rotated(path, 1))
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

// lastLine returns the last line of a file without its newline, and whether it
// has one. A line of more than maxLine bytes, which the log does not write, is
// cut at its front.
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

// rotate moves the files of a log on by one, so that path is free. At most keep
// of them stay beside it.
func rotate(path string, keep int) error {
	for n := keep; n > 0; n-- {
		from := path
		if n > 1 {
			from = Rotated(path, n-1)
		}
		if err := os.Rename(from, Rotated(path, n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
