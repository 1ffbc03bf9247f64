// Package files reads files that an operator names and a node reads repeatedly.
// It reads only regular files, each up to a size limit. It also replaces whole
// files. It never waits for a writer and starts no goroutine.
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrIrregular means that the path is not a regular file. A retry makes sense
// once a regular file has replaced it.
var ErrIrregular = errors.New("must be a regular file, because the node reads it again when it changes")

// Regular reads a file of at most most bytes. It follows links. If it fails
// after the file could be examined, about is still set.
func Regular(path string, most int) (text []byte, about fs.FileInfo, err error) {
	// Opening a device may have side effects, so look first.
	if about, err = os.Stat(path); err != nil {
		return nil, nil, err
	}
	if err := regular(path, about); err != nil {
		return nil, about, err
	}
	// The path may have become a pipe in the meantime. Without O_NONBLOCK,
	// opening a pipe would wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if about, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	if err := regular(path, about); err != nil {
		return nil, about, err
	}
	text, err = io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s: is larger than %d bytes", path, most)
	}
	return text, about, err
}

// regular returns an error unless about describes a regular file.
func regular(path string, about fs.FileInfo) error {
	kind := "special file"
	switch mode := about.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		kind = "directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "pipe"
	case mode&fs.ModeSocket != 0:
		kind = "socket"
	case mode&fs.ModeDevice != 0:
		kind = "device"
	}
	return fmt.Errorf("%s is a %s: %w", path, kind, ErrIrregular)
}
