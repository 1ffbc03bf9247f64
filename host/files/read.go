// Package files reads files that an operator names and a node reads again and
// again: regular ones alone, and no more than a bound of each. It also replaces
// files as a whole. It never waits for a writer, and starts no goroutine.
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrIrregular is of what is no regular file. Another attempt is right once
// there is one in its place.
var ErrIrregular = errors.New("it must be a regular file, since it is read again")

// Regular reads a file of no more than most bytes. Links are followed. Beside
// an error it tells about what is at the path unless that cannot be opened.
func Regular(path string, most int) (text []byte, about fs.FileInfo, err error) {
	// To open a device may do something: so it is looked at before.
	if about, err = os.Stat(path); err != nil {
		return nil, nil, err
	}
	if err := regular(path, about); err != nil {
		return nil, about, err
	}
	// Who opens a pipe waits for its writer unless it asks not to: it may have
	// come to the path since.
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

// regular refuses what is no regular file.
func regular(path string, about fs.FileInfo) error {
	kind := "thing of another kind"
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
